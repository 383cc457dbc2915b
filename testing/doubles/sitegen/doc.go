// Package sitegen draws random sites of change objects for tests, and computes how long
// a site needs at least to come up.
package sitegen
