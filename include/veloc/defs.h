#ifndef VELOC_DEFS_H
#define VELOC_DEFS_H
/* Constants of VELOC's interface. */

#ifndef VELOC_SUCCESS
#define VELOC_SUCCESS (0)
#endif
#ifndef VELOC_FAILURE
#define VELOC_FAILURE (-1)
#endif

#define VELOC_MAX_NAME (1024) /* bytes of a path that VELOC_Route_file answers, its end included */

/* Which regions of a checkpoint are read. */
#define VELOC_RECOVER_ALL (0)  /* all that it has */
#define VELOC_RECOVER_SOME (1) /* those that are named */
#define VELOC_RECOVER_REST (2) /* all but those that are named */

/* Which protected regions are written. */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

/* When an observer is called: at the end of Checkpoint_end. */
#define VELOC_OBSERVE_CKPT_END (0)

#ifndef VELOC_NO_FLAGS
/* Flags of a region, for VELOC_Mem_protect with six arguments. */
#define DEFAULT (0)
#define READ_ONLY (1) /* nobody writes to it before its release routine is called */
#endif

#endif
