"""The project's pages as a site: `tools/make-site` gathers them, has MkDocs build them, and checks what comes out."""
