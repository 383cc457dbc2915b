package instance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/coopr/coopr/plugins/sdk"
)

// Kind tells failures of a cloud apart.
type Kind int

// The kinds.
const (
	// Other may go away by itself.
	Other Kind = iota
	// Credentials are missing, wrong, or may not do this.
	Credentials
	// Invalid is a request that can never be right: no such image, flavor, zone.
	Invalid
	// Quota is room that the account has not.
	Quota
	// Capacity is room that the cloud has not, just now or in this zone.
	Capacity
	// Throttled is one request too many.
	Throttled
	// NotFound is about something that is not there (any more).
	NotFound
	// Conflict is about something that is there already, or is changing now.
	Conflict
	// Unclear: whether the request was carried out is not known.
	Unclear
)

// Fault is a failure of a known kind.
type Fault struct {
	Kind Kind
	Err  error
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Faultf makes one.
func Faultf(k Kind, format string, args ...any) error {
	return &Fault{k, fmt.Errorf(format, args...)}
}

// KindOf gives an error's kind; for those that are no Fault it looks whether the
// connection was the matter.
func KindOf(err error) Kind {
	var f *Fault
	var n net.Error
	switch {
	case errors.As(err, &f):
		return f.Kind
	case errors.As(err, &n), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unclear
	}
	return Other
}

// KindOfStatus gives what an HTTP status means where the cloud says no more.
func KindOfStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusPaymentRequired:
		return Credentials
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return Invalid
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return Conflict
	case http.StatusTooManyRequests:
		return Throttled
	}
	if status >= 500 {
		return Unclear
	}
	return Other
}

// told turns a cloud's failure into a task's: begun says that something was asked
// for that changes something.
func told(what string, err error, begun bool) error {
	if err == nil {
		return nil
	}
	k := KindOf(err)
	err = fmt.Errorf("%s: %w", what, err)
	switch {
	case k == Credentials:
		return sdk.Fatal(fmt.Errorf("%w: look at the credentials among the provider's fields, and what they may do", err))
	case k == Invalid, k == NotFound && begun:
		return sdk.Fatal(err)
	case k == Quota:
		return sdk.NothingDone(fmt.Errorf("%w: delete what is not needed, or have the account's quota raised", err))
	case k == Capacity, k == Throttled, !begun:
		return sdk.NothingDone(err)
	case k == Unclear:
		return sdk.Unknown(err)
	}
	return err
}
