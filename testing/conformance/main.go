// Command conformance runs case files against this project's engine: for each failing case it
// prints the expected and the actual result, and at the end how many cases passed and failed. It
// exits with 1 if one failed and with 2 on wrong usage.
//
//	go run ./testing/conformance solver FILE…
//	go run ./testing/conformance add-services FILE…
//	go run ./testing/conformance planner FILE…           (the order of tasks)
//	go run ./testing/conformance planner FILE… -compat   (the original's stages)
//	go run ./testing/conformance macros FILE…
//	go run ./testing/conformance plan-tree FILE…         (statuses and candidates; --help shows the format)
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// subcommands holds a function for each kind of file, by its name on the command line. It runs the
// cases and counts them.
var subcommands = map[string]func(files []string) (passed, failed int){
	"add-services": runAddServices,
	"macros":       runMacros,
	"plan-tree":    runPlanTree,
	"planner":      plannerCommand,
	"solver":       runSolver,
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) < 2 || subcommands[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "usage: conformance %s FILE…\n", strings.Join(slices.Sorted(maps.Keys(subcommands)), "|"))
		return 2
	}
	passed, failed := subcommands[args[0]](args[1:])
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return 1
	}
	return 0
}
