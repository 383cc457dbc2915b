package sim

// ring is the number of buckets for the events of the next ticks. Later events wait in a heap.
const ring = 1 << 12

type kind uint8

const (
	arrive   kind = iota // a packet
	ended                // an act
	timerDue             // a runtime's timer is due
	leader               // an action of the leader
)

type event struct {
	at       int64
	order    uint64 // among events of the same time, in the order of creation
	kind     kind
	agent    int32
	life     uint32 // of the agent; events for an earlier life are dropped
	act      act
	messages []message
	do       func()
}

// queue returns events in the order of their times, and events of the same time in the order
// in which they were added.
type queue struct {
	buckets [ring][]event
	far     []event // a heap
	now     int64
	near    int
	order   uint64
}

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	if e.at < q.now {
		e.at = q.now
	}
	if e.at < q.now+ring {
		b := &q.buckets[e.at%ring]
		*b = append(*b, e)
		q.near++
		return
	}
	q.far = append(q.far, e)
	for i := len(q.far) - 1; i > 0; {
		p := (i - 1) / 2
		if !q.far[i].before(&q.far[p]) {
			break
		}
		q.far[i], q.far[p] = q.far[p], q.far[i]
		i = p
	}
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

func (q *queue) popFar() event {
	top := q.far[0]
	last := len(q.far) - 1
	q.far[0] = q.far[last]
	q.far[last] = event{}
	q.far = q.far[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && q.far[c+1].before(&q.far[c]) {
			c++
		}
		if !q.far[c].before(&q.far[i]) {
			return top
		}
		q.far[i], q.far[c] = q.far[c], q.far[i]
		i = c
	}
}

// advance moves the time to the next event. It returns false if there is none.
func (q *queue) advance() bool {
	if q.near == 0 {
		if len(q.far) == 0 {
			return false
		}
		q.now = q.far[0].at
	} else {
		for len(q.buckets[q.now%ring]) == 0 {
			q.now++
			q.refill()
		}
		return true
	}
	q.refill()
	return true
}

// refill moves events from the heap to the buckets once their time is near.
func (q *queue) refill() {
	for len(q.far) > 0 && q.far[0].at < q.now+ring {
		e := q.popFar()
		b := &q.buckets[e.at%ring]
		*b = append(*b, e)
		q.near++
	}
}
