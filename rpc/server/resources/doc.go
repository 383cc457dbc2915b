// Package resources has the routes of plugin resources.
package resources
