package mask

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	m := New("s3cret/with spaces & 'quotes' \"too\"", "hunter2", "1", "-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n", "", " ")
	for in, want := range map[string]string{
		"the password is hunter2":                "the password is [redacted]",
		"hunter2":                                "[redacted]",
		"hunter2hunter2 hunter2":                 "hunter2hunter2 [redacted]",
		"hunter2 hunter2,hunter2":                "[redacted] [redacted],[redacted]",
		"exit code 1 of 10":                      "exit code [redacted] of 10",
		"MIIEvQIBADANBg":                         "[redacted]",
		"ab":                                     "ab",
		"x=-----BEGIN KEY-----":                  "x=[redacted]",
		"nothing here":                           "nothing here",
		"":                                       "",
		"s3cret/with spaces & 'quotes' \"too\"!": "[redacted]!",
	} {
		if got := m.Text(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
	if got := (*Mask)(nil).Text("hunter2"); got != "hunter2" {
		t.Error(got)
	}
	if got := New().Text("hunter2"); got != "hunter2" {
		t.Error(got)
	}
}

// FuzzForms encodes a secret as programs do, with other text around it, and searches for what is left of it.
func FuzzForms(f *testing.F) {
	f.Add("correct horse battery staple", "user:", "@host")
	f.Add("p@$$w0rd'\"<&>\\", "", "x")
	f.Add("ünïcödé-pässwörd", "ab", "")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		if len(secret) < 12 || strings.ContainsAny(secret, "\r\n") || strings.TrimSpace(secret) != secret || !json.Valid([]byte(fmt.Sprintf("%q", secret))) ||
			strings.ToValidUTF8(secret, "") != secret || strings.Contains(before+after, secret) || strings.Contains(Mark, secret) {
			return // none that a mask has to find
		}
		m := New(secret)
		whole := before + secret + after
		quoted, _ := json.Marshal(secret)
		for name, text := range map[string]string{"plain": whole, "URL": before + url.QueryEscape(secret) + after,
			"JSON": before + string(quoted) + after, "shell": before + "'" + strings.ReplaceAll(secret, "'", `'\''`) + "'" + after} {
			if got := m.Text(text); !strings.Contains(got, Mark) {
				t.Errorf("%s: %q became %q", name, text, got)
			}
		}
		// The first and last characters of the encoded secret depend on the text around it.
		encoded := base64.StdEncoding.EncodeToString([]byte(whole))
		if got := m.Text(encoded); !strings.Contains(got, Mark) {
			t.Errorf("base64: %q became %q", encoded, got)
		}
	})
}

// A long secret is hidden in the lines that base64 makes of it.
func TestWrappedBase64(t *testing.T) {
	secret := strings.Repeat("0123456789abcdef-", 20)
	m := New(secret)
	for _, width := range []int{76, 64} {
		for text := base64.StdEncoding.EncodeToString([]byte(secret)); len(text) > 8; text = text[min(width, len(text)):] {
			if line := text[:min(width, len(text))]; !strings.HasPrefix(m.Text(line), Mark) {
				t.Errorf("%q became %q", line, m.Text(line))
			}
		}
	}
}

func TestJSON(t *testing.T) {
	m := New("12345678", "42", "top secret")
	in := `{"a":"it is top secret","top secret":[1,42,12345678,{"b":"x12345678"}],"c":null,"d":1e400}`
	want := `{"a":"it is [redacted]","c":null,"d":1e400,"top secret":[1,42,12345678,{"b":"x[redacted]"}]}`
	if got := string(m.JSON([]byte(in))); got != want {
		t.Errorf("%s", got)
	}
	if got := string(m.JSON([]byte("{"))); got != "{" {
		t.Error(got)
	}
	if got := string(New().JSON([]byte(in))); got != in {
		t.Error(got)
	}
}

// A secret is hidden in a document in JSON that was encoded as a whole.
func TestBase64OfJSON(t *testing.T) {
	const secret = `pass "word" \ & more`
	for before := range 3 {
		for _, escape := range []bool{true, false} {
			var document strings.Builder
			e := json.NewEncoder(&document)
			e.SetEscapeHTML(escape)
			if err := e.Encode(map[string]string{strings.Repeat("x", before): secret}); err != nil {
				t.Fatal(err)
			}
			text := base64.StdEncoding.EncodeToString([]byte(document.String()))
			if got := New(secret).Text(text); !strings.Contains(got, Mark) {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}

// A mask says how long what it hides may be.
func TestLongest(t *testing.T) {
	for _, m := range []*Mask{nil, New(), New("hunter2")} {
		if n := m.Longest(); n != 1 {
			t.Errorf("%d", n)
		}
	}
	if n := New("1234567890").Longest(); n != 14 { // in base64
		t.Errorf("%d", n)
	}
}

// job returns secrets of a task and its output: n secrets, one in ten of them a key of several lines and one in ten short, and 1 MB of lines
// without any.
func job(n int) (secrets []string, output []string) {
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	text := func(n int) string {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		return base64.StdEncoding.EncodeToString(raw)
	}
	for i := range n {
		switch i % 10 {
		case 0:
			secrets = append(secrets, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte(text(900))})))
		case 1:
			secrets = append(secrets, text(4))
		default:
			secrets = append(secrets, text(24))
		}
	}
	for size := 0; size < 1<<20; size += 100 {
		output = append(output, fmt.Sprintf("%-28s the agents and their words, %s", text(21), text(30)))
	}
	return secrets, output
}

// BenchmarkText hides 200 secrets in 1 MB of output, line by line.
func BenchmarkText(b *testing.B) {
	secrets, output := job(200)
	m := New(secrets...)
	b.SetBytes(1 << 20)
	for b.Loop() {
		for _, line := range output {
			m.Text(line)
		}
	}
}

// BenchmarkNew makes a mask of 200 secrets, and uses it once.
func BenchmarkNew(b *testing.B) {
	secrets, _ := job(200)
	for b.Loop() {
		New(secrets...).Text("a line of the output")
	}
}

// A short secret may be bytes that are no text.
func TestShortBytes(t *testing.T) {
	if got := New("\x8a\xdd", "s3").Text("a\x8a\xddb s3"); got != "a"+Mark+"b "+Mark {
		t.Errorf("%q", got)
	}
}
