package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// pty returns both ends of a new pseudo-terminal: what a person uses, and what a program has.
func pty(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// TestAskPassphrase asks for passphrases on a terminal. It shows none of them, and an interrupt ends the question.
func TestAskPassphrase(t *testing.T) {
	person, in := pty(t)
	echoes := func() bool {
		t.Helper()
		state, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return state.Lflag&unix.ECHO != 0
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	c := command()
	c.SetContext(ctx)
	c.SetIn(in)
	c.SetErr(io.Discard)
	type answer struct {
		phrase string
		err    error
	}
	ask := func() chan answer {
		t.Helper()
		out := make(chan answer, 1)
		go func() {
			phrase, err := readPassphrase(c, "", "Passphrase", false)
			out <- answer{string(phrase), err}
		}()
		for echoes() { // until it waits for an answer
			runtime.Gosched()
		}
		return out
	}
	write := func(text string) {
		t.Helper()
		if _, err := person.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	got := ask()
	write("correct horse\n")
	if a := <-got; a.phrase != "correct horse" || a.err != nil {
		t.Error(a)
	}
	got = ask()
	interrupt()
	if a := <-got; !errors.Is(a.err, context.Canceled) || a.phrase != "" {
		t.Error("after an interrupt:", a)
	}
	if !echoes() {
		t.Error("the terminal does not show what is typed after an interrupt")
	}
}
