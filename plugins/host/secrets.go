package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/rpc/proto"
)

// maxSecrets bounds the secrets that are hidden in the host's log. Those that were not passed to a plugin for the longest time go
// first.
const maxSecrets = 256

// secrets are the secrets that the host has passed to plugins. They are hidden in its log, which has what plugins print on their own:
// a panic, or the output of a library. Plugins work on many tasks at a time, so such a line belongs to none.
type secrets struct {
	settings []string // those in the settings of plugins

	mu     sync.Mutex
	latest []string // the latest last
	mask   *mask.Mask
}

// add adds secrets that a plugin is about to get.
func (s *secrets) add(texts ...string) {
	if len(texts) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range texts {
		i := slices.Index(s.latest, text)
		if i < 0 {
			s.mask = nil
		} else {
			s.latest = slices.Delete(s.latest, i, i+1)
		}
		s.latest = append(s.latest, text)
	}
	s.latest = slices.Delete(s.latest, 0, max(0, len(s.latest)-maxSecrets))
}

// addFields adds the sensitive ones among the fields of a type, in JSON.
func (s *secrets) addFields(t model.PluginType, raw []byte) {
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return // the plugin refuses what is no object
	}
	s.add(SecretTexts(t, fields)...)
}

// text returns a text without the secrets.
func (s *secrets) text(text string) string {
	s.mu.Lock()
	if s.mask == nil {
		s.mask = mask.New(slices.Concat(s.settings, s.latest)...)
	}
	m := s.mask
	s.mu.Unlock()
	return m.Text(text)
}

// hiding is a slog.Handler that hides secrets in messages and in attributes. One that is neither a text nor a number, such as what a plugin
// logs in JSON, becomes a text if it has a secret.
type hiding struct {
	slog.Handler
	secrets *secrets
}

// Handle passes a record on without secrets.
func (h hiding) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, h.secrets.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h hiding) attr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.secrets.text(v.String()))
	case slog.KindGroup:
		group := slices.Clone(v.Group())
		for i := range group {
			group[i] = h.attr(group[i])
		}
		a.Value = slog.GroupValue(group...)
	case slog.KindAny:
		switch v := v.Any().(type) {
		case error:
			a.Value = slog.StringValue(h.secrets.text(v.Error()))
		case []byte:
			a.Value = slog.StringValue(h.secrets.text(string(v)))
		default:
			text := fmt.Sprintf("%+v", v)
			if hidden := h.secrets.text(text); hidden != text {
				a.Value = slog.StringValue(hidden)
			}
		}
	default: // numbers and times
	}
	return a
}

// WithAttrs returns a handler with further attributes.
func (h hiding) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range attrs {
		attrs[i] = h.attr(attrs[i])
	}
	return hiding{h.Handler.WithAttrs(attrs), h.secrets}
}

// WithGroup returns a handler whose further attributes are in a group.
func (h hiding) WithGroup(name string) slog.Handler {
	return hiding{h.Handler.WithGroup(name), h.secrets}
}

// SecretTexts returns the texts and numbers in the values that model.Sensitive names for a type, at every depth.
func SecretTexts(t model.PluginType, values map[string]any) (texts []string) {
	sensitive := model.Sensitive(t, values)
	for name, v := range values {
		texts = append(texts, secretTexts(v, slices.Contains(sensitive, name))...)
	}
	return texts
}

func secretTexts(v any, sensitive bool) (texts []string) {
	if sensitive {
		return mask.Texts(v)
	}
	switch v := v.(type) {
	case map[string]any:
		return SecretTexts(model.PluginType{}, v)
	case []any:
		for _, item := range v {
			texts = append(texts, secretTexts(item, false)...)
		}
	}
	return texts
}

// settingTexts returns the texts among settings whose names sound like secrets.
func settingTexts(settings json.RawMessage) []string {
	var fields map[string]any
	if len(settings) == 0 || json.Unmarshal(settings, &fields) != nil {
		return nil
	}
	return SecretTexts(model.PluginType{}, fields)
}

// hideSettings carries out a task, and hides the secrets of the plugin's settings in its log and in what its result says. They belong to
// the operator, and not to those who read the logs of tasks. The output stays: the next task may need such a secret.
func (h *Host) hideSettings(p *plug, sink Sink, execute func(Sink) *proto.Result) *proto.Result {
	path := p.file.path
	texts := settingTexts(h.cfg.binary(path).Settings)
	if len(texts) == 0 {
		return execute(sink)
	}
	hide := mask.New(texts...)
	r := execute(Hiding(sink, hide))
	r.Message, r.LogTail = hide.Text(r.Message), hide.Text(r.LogTail)
	return r
}

// Hiding returns a sink that passes the output of a task on, and hides secrets in its log.
func Hiding(sink Sink, m *mask.Mask) Sink { return hidingSink{sink, m} }

type hidingSink struct {
	Sink
	hide *mask.Mask
}

// Log passes a line on without secrets.
func (s hidingSink) Log(l *proto.LogLine) {
	l.Text = s.hide.Text(l.Text)
	s.Sink.Log(l)
}
