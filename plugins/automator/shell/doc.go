// Package shell is the automator "shell": an action of a service is a script,
// with arguments and environment, run on the node (docs/plugins.md).
package shell
