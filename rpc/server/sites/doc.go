// Package sites has the routes of sites of change objects.
package sites
