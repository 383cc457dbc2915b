package object

// Kind says what a message between two objects is about (rule 19).
type Kind uint8

// The messages. A dependent sends Request, Revoke and Release to what it
// depends on; that answers with Grant, and sends Recall when it wants the lock
// back, and Resync when it has begun anew.
//
// Recall is not in the paper: without it objects that need two locks can hold
// one each and wait for ever (docs/decisions/030-change-objects.md).
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

// Message goes from one object to a neighbour. It says all there is to say
// about their link at that moment, so that doubled, late and reordered messages
// change nothing: Epoch numbers what the dependent asks over this link, and an
// incarnation is an object's life at one home.
type Message struct {
	From, To ID
	// FromInc is the sender's incarnation, ToInc what it takes for the
	// receiver's (0: not known).
	FromInc, ToInc uint32
	Epoch          uint32
	Kind           Kind
	State          State // asked for, in a Request
	Urgent         bool  // a Request on behalf of a removal (rule 24)
	Held           bool  // a Request, answering a Resync: "I hold it"
	Eager          bool  // a Grant: "I would leave this state: release it as soon as you can"
	Lazy           bool  // a Release that nobody waits for: it may ride with the next packet
}

// Event is what happens to an object.
type Event struct {
	What    What
	Message Message // Received
	State   State   // Checked: what the check found, unknown when it could not tell
	OK      bool    // Done: whether the action worked
	Inc     uint32  // Started
	Peer    ID      // Freed
	Def     *Def    // Switched
	// Reconnected: of which neighbours; of all where nil.
	Of func(ID) bool
}

// What is the kind of an event.
type What uint8

// The events.
const (
	// Started: a home begins to run the object, with incarnation Inc. 1 says
	// that it never ran before, so that nobody can hold a lock of it.
	Started What = iota + 1
	// Received: a neighbour's message has come.
	Received
	// Checked: the check that was asked for has ended.
	Checked
	// Done: the action that was asked for has ended.
	Done
	// Alarm: the time that an Alarm act asked for has come.
	Alarm
	// Nudge: time has passed while the object waits for others. What it asked
	// for is asked for again, as any message may be lost, less and less often.
	Nudge
	// Reconnected: messages may have been lost just now.
	Reconnected
	// Probe: look for drift (rule 2; the answer is a Checked).
	Probe
	// Removing: drive the object to its preRemove state (rule 24).
	Removing
	// Switched: a new generation, in which the object is defined by Def.
	Switched
	// Freed: the neighbour Peer is known to be removed, or an operator says
	// that it holds nothing (rule 20).
	Freed
)

// Act is something that an object's home has to do for it.
type Act struct {
	ID   ID
	What Doing
	// Run: the transition.
	Transition Transition
	// Wake: when, on the clock of Handle's now.
	At int64
}

// Doing is the kind of an act.
type Doing uint8

// The acts. Check answers with the event Checked, Run with Done, Wake with Alarm.
const (
	Check Doing = iota + 1
	Run
	SetTimer
)

// Effects collects what follows from events. The caller empties and reuses it.
type Effects struct {
	Messages []Message
	Acts     []Act
}

// Reset empties the effects and keeps their memory.
func (fx *Effects) Reset() { fx.Messages, fx.Acts = fx.Messages[:0], fx.Acts[:0] }
