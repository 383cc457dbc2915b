// Package rules checks a definition by itself: names, numbers within their bounds, and parts that contradict each other. Package lint
// checks definitions against each other.
package rules
