package object

// Kind is the kind of a message between two objects (rule 19).
type Kind uint8

// The kinds of messages. A dependent sends Request, Revoke and Release to its provider. The
// provider answers with Grant, sends Recall when it wants the lock back, and Resync when it has
// begun a new life.
//
// Recall is not in the paper. Without it, objects that need two locks can hold one each and
// wait for ever (docs/decisions/030-change-objects.md).
const (
	Request Kind = iota + 1
	Revoke
	Release
	Grant
	Recall
	Resync
)

var kindNames = [...]string{"", "request", "revoke", "release", "grant", "recall", "resync"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Message goes from one object to a neighbour. It carries the whole state of their link at
// that moment, so that duplicated, late and reordered messages are harmless. Epoch numbers the
// requests of the dependent over this link. An incarnation is one life of an object on one
// agent.
type Message struct {
	From, To ID
	// FromInc is the sender's incarnation, ToInc the receiver's as far as the sender knows it
	// (0: unknown).
	FromInc, ToInc uint32
	Epoch          uint32
	Kind           Kind
	State          State // the requested state, in a Request
	Urgent         bool  // a Request on behalf of a removal (rule 24)
	Held           bool  // a Request, answering a Resync: "I hold it"
	Eager          bool  // a Grant: "I would leave this state: release it as soon as you can"
	Lazy           bool  // a Release that no object waits for: it may wait for another packet
}

// Event is something that happens to an object.
type Event struct {
	What    What
	Message Message // Received
	State   State   // Checked: the result of the check, Unknown if it had none
	OK      bool    // Done: whether the action succeeded
	Inc     uint32  // Started
	Peer    ID      // Freed
	Def     *Def    // Switched
	// Reconnected: the neighbours concerned, or nil for all.
	Of func(ID) bool
}

// What is the kind of an event.
type What uint8

// The kinds of events.
const (
	// Started: an agent begins to run the object, with incarnation Inc. Incarnation 1 means
	// that the object never ran before, so that no lock of it can be held.
	Started What = iota + 1
	// Received: a message from a neighbour has arrived.
	Received
	// Checked: the requested check has ended.
	Checked
	// Done: the requested action has ended.
	Done
	// Alarm: the timer of a SetTimer act has fired.
	Alarm
	// Nudge: time has passed while the object waits for others. It repeats its requests, less
	// and less often, because any message may have been lost.
	Nudge
	// Reconnected: messages may just have been lost.
	Reconnected
	// Probe: check for drift (rule 2); the answer is a Checked.
	Probe
	// Removing: drive the object to its preRemove state (rule 24).
	Removing
	// Switched: a new generation, in which Def defines the object.
	Switched
	// Freed: the neighbour Peer has been removed, or an operator has stated that it holds
	// nothing (rule 20).
	Freed
)

// Act is something that the runtime must do for an object.
type Act struct {
	ID   ID
	What Doing
	// Run: the transition to make.
	Transition Transition
	// SetTimer: the time, on the clock of Handle's now.
	At int64
}

// Doing is the kind of an act.
type Doing uint8

// The kinds of acts. The answer to Check is the event Checked, to Run it is Done, and to
// SetTimer it is Alarm.
const (
	Check Doing = iota + 1
	Run
	SetTimer
)

// Effects collects the effects of events. The caller empties and reuses it.
type Effects struct {
	Messages []Message
	Acts     []Act
}

// Reset empties the effects and keeps their memory.
func (fx *Effects) Reset() { fx.Messages, fx.Acts = fx.Messages[:0], fx.Acts[:0] }
