package loop

import "sync"

// Mailbox holds messages, usually functions, that others leave for the owner of some
// state. The owner takes them in the order in which they were posted. A Mailbox does not
// notify its owner; the sender adds a key to the owner's Queue for that. The zero Mailbox
// is empty and open.
type Mailbox[T any] struct {
	mu     sync.Mutex
	mail   []T
	closed bool
}

// Post leaves a message. It reports false, and drops the message, if the mailbox is
// closed.
func (m *Mailbox[T]) Post(message T) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.mail = append(m.mail, message)
	return true
}

// Take removes and returns the messages that wait.
func (m *Mailbox[T]) Take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mail
	m.mail = nil
	return mail
}

// Close drops the messages that wait, and all that are posted from now on.
func (m *Mailbox[T]) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail, m.closed = nil, true
}

// CloseIfEmpty closes the mailbox and reports true, unless a message waits.
func (m *Mailbox[T]) CloseIfEmpty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mail) > 0 {
		return false
	}
	m.closed = true
	return true
}
