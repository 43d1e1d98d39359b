# The commands of the README. They install what is missing and keep to this checkout (.venv/, build/).
SHELL := bash
JOBS ?= $(shell nproc)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# A compiler cache that was filled in another folder serves here too.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: demo test test-sanitized test-frameworks test-races test-all build wheels try-wheels docs papers site reliability clean
demo: build      ## a seismic imaging job through the store, about a minute
	.venv/bin/ebbtide demo

test: build      ## every test: C++, then Python, documents and style
	.venv/bin/python tools/run_tests.py test --jobs $(JOBS)

test-sanitized:  ## C++ under the address and undefined-behaviour sanitizers
	tools/bootstrap
	.venv/bin/python tools/run_tests.py sanitized --jobs $(JOBS)

test-frameworks: build  ## the helpers for PyTorch, JAX, adjoints and seismic codes, in an environment of their own; ten minutes
	.venv/bin/python tools/run_tests.py frameworks --jobs $(JOBS)

test-races:      ## the thread sanitizer over the rooms that have threads
	tools/bootstrap
	.venv/bin/python tools/run_tests.py races --jobs $(JOBS)

test-all: build  ## before a release: all but the helpers', each test in its long form; an hour or more
	.venv/bin/python tools/run_tests.py all --jobs $(JOBS)

# One tree, build/release, has the objects of the wheel and of the C++ tests, so nothing is compiled twice. A warning
# stops continuous integration; here it must not stop somebody who only wants the demo.
build:           ## .venv/bin/ebbtide
	tools/bootstrap
	@echo "compiling; a minute or two on two cores, the first time"
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --config-settings=build-dir=build/release --config-settings=cmake.define.EBB_TESTS=ON \
	  --config-settings=cmake.define.EBB_TEST_ROOMS= --config-settings=cmake.define.EBB_ROOMS= \
	  --config-settings=cmake.define.EBB_BENCHES=ON --config-settings=cmake.define.EBB_WERROR=$(if $(CI),ON,OFF) .

# CUDA=OFF where there is no nvcc; HOME_URL=ADDRESS, where the tree's files lie, for the links of the package's page.
CUDA ?= REQUIRED
wheels:          ## dist/: wheels for Python 3.11, and for 3.12 and later, and the source distribution
	tools/bootstrap
	.venv/bin/python tools/make-wheels --jobs $(JOBS) --cuda $(CUDA) $(if $(HOME_URL),--home $(HOME_URL))

try-wheels:      ## installs and runs them in clean systems, Debian 12 and 13; as root
	.venv/bin/python tools/try-wheels

docs: build      ## the pictures and tables in docs/ that are generated
	.venv/bin/python tools/make_docs.py

papers: build    ## docs/papers.md: the papers' figures, measured once more
	mkdir -p benches/results/papers
	for figure in $$(.venv/bin/ebbtide bench paper --list | cut -d " " -f 1); do .venv/bin/ebbtide bench paper $$figure \
	  --json benches/results/papers/$$(echo $$figure | tr : -).json || exit 1; done
	.venv/bin/python tools/make_docs.py

site:            ## the pages as a site, build/site/html; .venv must have the package (make build); needs Debian's chromium
	.venv/bin/python tools/make-site

reliability:     ## every trial of reliability, and docs/reliability.md from what it counts; four hours, best as root
	reliability/run --prepare

clean:           ## forgets build/ and .venv/
	rm -rf build .venv
