// Package loop holds the keyed work queue under every controller: those of the
// leader, the worker's health checks, fence and log sweeps, the blob cache and the
// runtime of change objects.
//
// A controller is level-triggered. An event only adds the key of the thing that may
// have changed; the controller's reconcile function then reads the current state of
// that thing and does what is missing. Events may therefore be merged, repeated or
// early without harm. A new controller subscribes to events first and then adds every
// key once, so that no change falls between.
//
// [Queue] decides when keys are reconciled. [Mailbox] carries what is not a level:
// calls that one owner has to carry out in order.
package loop
