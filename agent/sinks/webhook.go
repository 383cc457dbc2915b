package sinks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/audit"
)

// Webhook posts records to a URL as lines of JSON. Every answer of success means that the server has them.
type Webhook struct {
	where, ca, headers string
	client             *http.Client // nil until the CAs could be read
}

// NewWebhook returns the webhook of a URL. The files of CAs and of headers may be "".
func NewWebhook(where, ca, headers string) *Webhook {
	return &Webhook{where: where, ca: ca, headers: headers}
}

// answerTime bounds the wait for an answer.
const answerTime = 30 * time.Second

// Deliver posts records. The file of headers is read each time, so that its secret can be replaced.
func (w *Webhook) Deliver(ctx context.Context, records []audit.Record) error {
	text, err := lines(records)
	if err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.where, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if w.headers != "" {
		if req.Header, err = config.ReadHeaders(w.headers); err != nil {
			return err
		}
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("User-Agent", "coopr-agent")
	resp, err := w.client.Do(req)
	var bare *url.Error
	if errors.As(err, &bare) {
		return bare.Err // without the URL, which may have a secret
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A short answer is read, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, mostAnswer)
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("the webhook answers %s: sinks follow no redirects, configure the final URL", resp.Status)
	}
	return fmt.Errorf("the webhook answers %s", resp.Status)
}

// open makes the client of the first delivery. The duty delivers to one sink at a time.
func (w *Webhook) open() error {
	if w.client != nil {
		return nil
	}
	roots, err := authorities(w.ca)
	if err != nil {
		return err
	}
	w.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: mostAnswer,
			MaxIdleConns:           1,
			IdleConnTimeout:        time.Minute,
		},
	}
	return nil
}
