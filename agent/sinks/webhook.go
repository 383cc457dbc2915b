package sinks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/audit"
)

// Webhook posts records to a URL as lines of JSON, or as a message that Slack shows. Every answer of success means that the server has
// them.
type Webhook struct {
	cfg    config.AuditSink
	client *http.Client // nil until the CAs could be read
}

// NewWebhook returns the webhook of a configuration.
func NewWebhook(cfg config.AuditSink) *Webhook { return &Webhook{cfg: cfg} }

// The headers of a request that is signed. The signature is "sha256=" and the HMAC-SHA256 in hexadecimal of the time (Unix seconds, in
// digits), a full stop, and the body. A receiver refuses requests whose time is long ago, which somebody sends again.
const (
	headerTime      = "Coopr-Time"
	headerSignature = "Coopr-Signature"
)

// sign signs a request.
func (w *Webhook) sign(h http.Header, body []byte) error {
	key, err := config.ReadSignatureKey(w.cfg.SignatureKeyFile)
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(now + "."))
	mac.Write(body)
	h.Set(headerTime, now)
	h.Set(headerSignature, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return nil
}

// answerTime bounds the wait for an answer.
const answerTime = 30 * time.Second

// Bounds of messages that Slack shows: it cuts what is longer, and takes about one a second.
const (
	mostPosted = 25
	postPause  = time.Second
)

// slack has what Slack and Mattermost read as markup. No name can mention people, or have a link that leads elsewhere. A space of no width
// keeps Mattermost, which takes Markdown, from either.
var slack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b", "](", "]\u200b(", "][", "]\u200b[")

// body returns the body of a request, and its type.
func (w *Webhook) body(records []audit.Record) (text []byte, kind string, err error) {
	if w.cfg.Format != config.FormatSlack {
		text, err = lines(records)
		return text, "application/x-ndjson", err
	}
	var message strings.Builder
	for i := range records {
		message.WriteString(cut(slack.Replace(sentence(&records[i])), longestSentence) + "\n")
	}
	text, err = json.Marshal(map[string]any{"text": message.String(), "mrkdwn": false})
	return text, "application/json", err
}

// Deliver posts records. The file of headers is read each time, so that its secret can be replaced.
func (w *Webhook) Deliver(ctx context.Context, records []audit.Record) error {
	text, kind, err := w.body(records)
	if err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if w.cfg.HeaderFile != "" {
		if req.Header, err = config.ReadHeaders(w.cfg.HeaderFile); err != nil {
			return err
		}
	}
	if w.cfg.SignatureKeyFile != "" {
		if err := w.sign(req.Header, text); err != nil {
			return err
		}
	}
	req.Header.Set("Content-Type", kind)
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
	roots, err := authorities(w.cfg.CACert)
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
