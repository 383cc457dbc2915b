// Package work is what automators do alike on a task's node: they reach it, run a
// program there with the task's variables and configuration, say what the
// program's end means, and keep the node's record of finished tasks.
package work
