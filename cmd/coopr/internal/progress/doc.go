// Package progress starts operations on clusters and shows them until they end.
package progress
