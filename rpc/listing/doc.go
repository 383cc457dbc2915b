// Package listing selects, sorts and pages the rows of every list of the API, by parameters that all lists share
// (docs/decisions/082-lists.md). It sees only rows that the caller may see, in the form in which they are answered.
package listing
