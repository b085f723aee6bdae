# Tilewright. `make help` lists the goals; the rules live in tools/mk/.
.DEFAULT_GOAL := all

include tools/mk/config.mk
include tools/mk/packages.mk
include tools/mk/sources.mk
include tools/mk/build.mk
include tools/mk/tests.mk
include tools/mk/install.mk
include tools/mk/goals.mk
