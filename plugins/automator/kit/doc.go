// Package kit is the common part of automators: it reaches a task's node, runs a program there with
// the task's variables and configuration, interprets the program's end, and keeps the node's record
// of finished tasks. [Base] implements the parts of the plugin interface that are the same in all
// automators.
package kit
