// Package kit is what automators do alike on a task's node: they reach it, run a
// program there with the task's variables and configuration, say what the
// program's end means, and keep the node's record of finished tasks. [Base] holds
// the parts of the plugin's own interface that are the same in all of them.
package kit
