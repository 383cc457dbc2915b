// Package site is an installation for end-to-end tests on light machines: the
// real programs, built once, with an agent in the lab's arena.
package site
