# The scripts of this folder read this file. It sets GOFLAGS for code that only tests run: without
# inlining and debugging information, the compiler needs a third less time for this module.
export GOFLAGS="-buildvcs=false '-gcflags=-l -dwarf=false'"
