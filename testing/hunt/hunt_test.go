package hunt

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// encodings are the ways in which programs write a text.
var encodings = map[string]func(string) string{
	"as it is": func(s string) string { return s },
	"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 for URLs": func(s string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(s))
	},
	"base64 in lines of 76":     func(s string) string { return lines(base64.StdEncoding.EncodeToString([]byte(s)), 76) },
	"base64 in lines of 64":     func(s string) string { return lines(base64.StdEncoding.EncodeToString([]byte(s)), 64) },
	"URL":                       url.QueryEscape,
	"URL with small letters":    func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
	"path of a URL":             url.PathEscape,
	"shell":                     func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"shell with double quotes":  func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" },
	"JSON":                      func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"JSON without HTML":         plainJSON,
	"JSON in ASCII":             strconv.QuoteToASCII,
	"JSON within JSON":          func(s string) string { b, _ := json.Marshal(plainJSON(s)); return string(b) },
	"base64 of JSON":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(plainJSON(s))) },
	"hexadecimal":               func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hexadecimal with capitals": func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
}

func plainJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSpace(b.String())
}

// lines breaks a text into lines.
func lines(s string, width int) string {
	var out strings.Builder
	for i, c := range s {
		if i > 0 && i%width == 0 {
			out.WriteByte('\n')
		}
		out.WriteRune(c)
	}
	return out.String()
}

// noise returns random bytes.
func noise(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rand.Uint32())
	}
	return out
}

// canaries are those of the tests.
func canaries() []Canary {
	return []Canary{Plant("planted"), Word("word"), {"a phrase", "words of the agents & others"}, {"bytes", string(noise(32))},
		{"a key", "-----BEGIN PRIVATE KEY-----\n" + lines(base64.StdEncoding.EncodeToString(noise(100)), 64) + "\n-----END"}}
}

// Each encoding of each canary is found, after any text, and under its own name. The others are not.
func TestForms(t *testing.T) {
	all := canaries()
	h := New(all...)
	for _, c := range all {
		for name, encode := range encodings {
			if c.Kind == "bytes" && strings.Contains(name, "JSON") {
				continue // JSON cannot have them
			}
			for before := range 4 {
				data := encode(strings.Repeat("x", before) + c.Value + "y")
				found := h.Bytes("here", append(append(noise(50), data...), noise(50)...))
				if len(found) != 1 || found[0].Kind != c.Kind || found[0].Where != "here" {
					t.Errorf("%s, %s after %d: found %v in %q", c.Kind, name, before, found, data)
				}
			}
		}
	}
}

// A half of a canary is found: a message may be cut.
func TestHalves(t *testing.T) {
	c := Plant("planted")
	h := New(c, Word("word"))
	for name, part := range map[string]string{"first": c.Value[:len(c.Value)/2], "last": c.Value[len(c.Value)/2:]} {
		if found := h.Bytes("here", []byte("it is "+part)); len(found) != 1 {
			t.Errorf("the %s half: %v", name, found)
		}
	}
}

// Nothing is found where nothing is, so that what is found counts.
func TestNothing(t *testing.T) {
	h := New(canaries()...)
	for _, data := range [][]byte{nil, []byte("x"), noise(4 << 20), bytes.Repeat([]byte("the agents and their words "), 1000)} {
		if found := h.Bytes("here", data); len(found) > 0 {
			t.Errorf("found %v", found)
		}
	}
	for _, c := range canaries() {
		if found := h.Bytes("here", []byte(c.Value)); len(found) > 0 && c.Kind != "a phrase" {
			t.Errorf("found another's %s: %v", c.Kind, found)
		}
	}
	for _, bad := range [][]Canary{{{"short", "1234567"}}, {{"one", "12345678"}, {"other", "12345678"}}, {Word("twice"), Word("twice")}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("canaries %v are taken", bad)
				}
			}()
			New(bad...)
		}()
	}
}

func TestReader(t *testing.T) {
	c := Plant("planted")
	found, err := New(c).Reader("an answer", io.MultiReader(strings.NewReader("x"+c.Value[:10]), strings.NewReader(c.Value[10:])))
	if err != nil || len(found) != 1 || found[0].Where != "an answer" || found[0].Before != "x" {
		t.Errorf("%v, %v", found, err)
	}
}

// A canary in the environment or the arguments of a process is found.
func TestProcess(t *testing.T) {
	env, arg, other := Plant("environment"), Plant("argument"), Plant("nowhere")
	cmd := exec.Command("cat", "--", "-", filepath.Join("/nowhere", arg.Kind), arg.Value)
	cmd.Env = append(os.Environ(), "PIN="+env.Value)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := New(env, arg, other).Process(cmd.Process.Pid)
	if err != nil || len(found) != 2 || found[0].Kind != arg.Kind || found[1].Kind != env.Kind ||
		!strings.HasSuffix(found[0].Where, "cmdline") || !strings.HasSuffix(found[1].Where, "environ") {
		t.Errorf("%v, %v", found, err)
	}
	_ = in.Close()
	_ = cmd.Wait() // it fails for want of the files
	if _, err := New(env).Process(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended has no error")
	}
}

func BenchmarkBytes(b *testing.B) {
	var all []Canary
	for i := range 40 {
		all = append(all, Plant(fmt.Sprint(i)))
	}
	h := New(all...)
	data := noise(16 << 20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		h.Bytes("here", data)
	}
}
