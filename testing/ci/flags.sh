# stages.sh and tests.sh read this file. It sets GOFLAGS for all that they compile: without inlining and
# debugging information, the compiler needs a third less time for this module.
export GOFLAGS="-buildvcs=false '-gcflags=-l -dwarf=false'"
