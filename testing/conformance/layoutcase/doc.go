// Package layoutcase reads the case files of the solver and of adding services, and checks the
// answers of engine/solver (docs/spec/solver.md "Cases").
package layoutcase
