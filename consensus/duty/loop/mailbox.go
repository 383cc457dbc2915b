package loop

import "sync"

// Mailbox holds calls that others leave for the owner of some state. The owner takes
// them in the order in which they were posted. A Mailbox does not wake its owner; the
// usual notification is a key in the owner's Queue. The zero Mailbox is empty and open.
type Mailbox struct {
	mu     sync.Mutex
	calls  []func()
	closed bool
}

// Post leaves a call. It reports false, and drops the call, if the mailbox is closed.
func (m *Mailbox) Post(call func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.calls = append(m.calls, call)
	return true
}

// Take removes and returns the calls that wait.
func (m *Mailbox) Take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

// Close drops the calls that wait, and all that are posted from now on.
func (m *Mailbox) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.closed = nil, true
}

// CloseIfEmpty closes the mailbox and reports true, unless a call waits.
func (m *Mailbox) CloseIfEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) > 0 {
		return false
	}
	m.closed = true
	return true
}
