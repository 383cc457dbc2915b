// Package output writes what commands have to show: tables for people, and JSON or YAML for programs.
package output
