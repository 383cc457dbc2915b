// Package search finds things by parts of their names and ids.
package search
