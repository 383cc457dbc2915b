package main

import (
	"fmt"

	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// runSolver runs cases of making layouts.
func runSolver(files []string) (passed, failed int) { return runLayouts(files, layoutcase.Solver) }

// runAddServices runs cases of adding services to a cluster.
func runAddServices(files []string) (passed, failed int) {
	return runLayouts(files, layoutcase.AddServices)
}

func runLayouts(files []string, load func(path string) ([]layoutcase.Result, error)) (passed, failed int) {
	for _, name := range files {
		results, err := load(name)
		if err != nil {
			failed++
			fmt.Printf("FAIL %v\n", err)
			continue
		}
		for _, r := range results {
			if r.OK {
				passed++
				continue
			}
			failed++
			fmt.Printf("FAIL %s: %s: expected %s; came %s\n", name, r.Name, r.Expected, r.Came)
		}
	}
	return passed, failed
}
