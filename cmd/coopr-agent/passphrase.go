package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/internal/terminal"
)

// passphraseFrom is the text about a flag that names a file with a passphrase.
const passphraseFrom = "; - is standard input. Without it, the terminal is asked, or standard input is read if there is none"

// readPassphrase returns a passphrase: the first line of a file, or what the terminal or standard input says if file is "". A new one is
// asked for twice on a terminal.
func readPassphrase(c *cobra.Command, file, question string, fresh bool) ([]byte, error) {
	in, isFile := c.InOrStdin().(*os.File)
	switch {
	case file == "" && isFile && term.IsTerminal(int(in.Fd())):
		return askPassphrase(c, in, question, fresh)
	case file == "" || file == "-":
		return readLine(c.InOrStdin())
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLine(f)
}

// readLine reads a line and nothing behind it, so that the next one can be read, too.
func readLine(in io.Reader) (line []byte, err error) {
	for b := make([]byte, 1); len(line) <= keyring.MaxPassphrase; {
		n, err := in.Read(b)
		if n == 1 && b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n == 1 || err != nil {
			break
		}
	}
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return nil, errors.New("the passphrase is empty")
	}
	return line, nil
}

// askPassphrase asks for a passphrase on a terminal, which does not show it.
func askPassphrase(c *cobra.Command, in *os.File, question string, fresh bool) ([]byte, error) {
	ask := func(question string) ([]byte, error) {
		defer fmt.Fprintln(c.ErrOrStderr())
		return terminal.Ask(c.Context(), in, c.ErrOrStderr(), question+": ")
	}
	phrase, err := ask(question)
	if err != nil || !fresh {
		return phrase, err
	}
	again, err := ask("The same again")
	if err == nil && !bytes.Equal(phrase, again) {
		err = errors.New("the two are not the same")
	}
	return phrase, err
}
