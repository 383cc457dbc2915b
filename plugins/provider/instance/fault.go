package instance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/coopr/coopr/plugins/sdk"
)

// Kind classifies the failures of a cloud.
type Kind int

// The kinds.
const (
	// Other failures may not happen again.
	Other Kind = iota
	// Credentials are missing, wrong or insufficient.
	Credentials
	// Invalid is a request that can never succeed: no such image, flavor or zone.
	Invalid
	// Quota of the account is exhausted.
	Quota
	// Capacity of the cloud is exhausted, for now or in this zone.
	Capacity
	// Throttled requests came too fast.
	Throttled
	// NotFound means that the object of the request does not exist.
	NotFound
	// Conflict means that the object exists already, or is being changed.
	Conflict
	// Unclear means that the request may have been carried out.
	Unclear
)

// Fault is a failure with its kind.
type Fault struct {
	Kind Kind
	Err  error
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Faultf returns a Fault with a formatted message.
func Faultf(k Kind, format string, args ...any) error {
	return &Fault{k, fmt.Errorf(format, args...)}
}

// KindOf returns an error's kind. Network errors and timeouts that are no Fault are Unclear.
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

// KindOfStatus returns the usual meaning of an HTTP status.
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

// told returns the task's error for a cloud's failure. begun means that the request may have
// changed something.
func told(what string, err error, begun bool) error {
	if err == nil {
		return nil
	}
	k := KindOf(err)
	err = fmt.Errorf("%s: %w", what, err)
	switch {
	case k == Credentials:
		return sdk.Fatal(fmt.Errorf("%w: check the credentials in the provider's fields and their permissions", err))
	case k == Invalid, k == NotFound && begun:
		return sdk.Fatal(err)
	case k == Quota:
		return sdk.NothingDone(fmt.Errorf("%w: delete unused resources, or have the account's quota raised", err))
	case k == Capacity, k == Throttled, !begun:
		return sdk.NothingDone(err)
	case k == Unclear:
		return sdk.Unknown(err)
	}
	return err
}
