// Package layoutcase reads the case files of the solver and of adding services,
// and judges what engine/solver answers to them (docs/spec/solver.md "Cases").
package layoutcase
