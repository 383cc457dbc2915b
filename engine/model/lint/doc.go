// Package lint checks definitions against each other: references, compatibility, dependency
// cycles, macros. The rules of a definition by itself are in package rules.
package lint
