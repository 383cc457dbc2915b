package ssh

import (
	"fmt"
	"strings"
	"time"

	"github.com/coopr/coopr/plugins/remote"
)

// bootstrap is the only command that is passed to sshd. It is a constant, so that no shell of any
// user needs quoting. The actual program follows on standard input: its length in a line, then the
// program.
const (
	plainPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	bootstrap = "env -i PATH=" + plainPath + " /bin/sh -c 'read -r n && p=$(head -c \"$n\") && eval \"$p\"'"
)

// command returns the command for sshd.
func command(sudo bool) string {
	if sudo {
		return "exec sudo -n -- " + bootstrap
	}
	return "exec " + bootstrap
}

// quote returns s as one word for a POSIX shell. Between single quotes only a single quote has a
// meaning.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = quote(w)
	}
	return strings.Join(q, " ")
}

// frame returns the first bytes for the node: the program with its length. The braces make an
// incomplete program a syntax error, so that it does nothing.
func frame(program string) []byte {
	program = "{\n" + program + "\n}"
	return fmt.Appendf(nil, "%d\n%s", len(program), program)
}

// complete is the line that follows the files on a watched program's standard input. If it is
// missing, the connection was lost before all files arrived, and the command is not run.
const complete = "complete\n"

// file is a file for a command. A script stays on the node. Any other file is a secret, which is
// removed when the command ends.
type file struct {
	path    string
	content []byte
	script  bool
}

// watched returns a shell program that runs a command in a session of its own. On standard input
// the program reads the contents of files, in their order, and then the line complete. While the
// command runs, a guard process waits for another line or for the end of standard input. Then the
// guard ends the command's process group: first with TERM, and with KILL when grace is over.
//
// The program prints mark just before it starts the command; if mark is missing in the output, the
// command has not run. The program stores the number of the process group in the file that state
// names. If the command's exit status is 0 and done is not empty, the program appends done as a
// line to the file that record names.
func watched(args []string, dir string, env []string, files []file, grace time.Duration, mark, state, record, done string) string {
	var p strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&p, format+"\n", a...) }
	remove := "rm -f " + quote(state)
	for _, f := range files {
		if !f.script {
			remove += " " + quote(f.path)
		}
	}
	line("exec 3<&0 </dev/null")
	line("__setsid=$(command -v setsid) || { echo the program setsid is missing >&2; exit 126; }")
	line("umask 077")
	for _, f := range files {
		if f.script {
			// Files are written completely or not at all, as other tasks may be running them.
			aside := quote(f.path + mark)
			line("mkdir -p %s && head -c %d <&3 >%s && chmod 755 %s && mv -f %s %s || { %s; exit 126; }", quote(parent(f.path)), len(f.content),
				aside, aside, aside, quote(f.path), remove)
			continue
		}
		line("head -c %d <&3 >%s || { %s; exit 126; }", len(f.content), quote(f.path), remove)
	}
	line(`read -r __word <&3 && [ "$__word" = complete ] || { %s; exit 126; }`, remove)
	line("umask 022")
	line("cd %s || { %s; exit 126; }", quote(dir), remove)
	line("__stopped=")
	line("trap '__stopped=1' USR1")
	line(`( read -r __word <&3; kill -USR1 "$$"`)
	line(`  __group=$(cat %s)`, quote(state))
	line("  %s", findOthers)
	line(`  [ -z "$__group" ] || kill -s TERM -- "-$__group" $__others`)
	line(`  sleep %d & __sleep=$!; trap 'kill "$__sleep"; exit' TERM; wait "$__sleep"`, max(1, int((grace+time.Second-1)/time.Second)))
	line(`  __group=$(cat %s) && kill -s KILL -- "-$__group"; %s`, quote(state), remove)
	line(") </dev/null >/dev/null 2>&1 &")
	line("__guard=$!")
	line(`/bin/sh -c %s sh "$__setsid" 3<&-`, quote(launch(args, env, mark, state)))
	line("__code=$?")
	if done != "" {
		folder, file := quote(parent(record)), quote(record)
		line(`if [ "$__code" -eq 0 ] && [ -z "$__stopped" ]; then`)
		line(`  umask 077; [ -d %s ] || mkdir -p %s; printf '%%s\n' %s >>%s || { echo cannot write down what was done >&2; __code=%d; }`,
			folder, folder, quote(done), file, remote.ExitNotRecorded)
		line("fi")
	}
	line(`[ -z "$__stopped" ] || { __group=$(cat %s) && kill -s KILL -- "-$__group"; } 2>/dev/null`, quote(state))
	line("%s", remove)
	line(`kill -TERM "$__guard" 2>/dev/null`)
	line(`exit "$__code"`)
	return p.String()
}

// findOthers is a part of a shell program. It sets __others to the descendants of the process group __group that
// are in other groups. It reads until it finds no more, since a child may have a lower number than its parent.
const findOthers = `__tree=' ' __others= __more=1
  while [ "$__more" ]; do
    __more=
    for __stat in /proc/[0-9]*/stat; do
      read -r __pid __rest <"$__stat" || continue
      case $__tree in *" $__pid "*) continue ;; esac
      set -- ${__rest##*) } # its state, its parent, its group
      if [ "$3" = "$__group" ]; then
        __tree="$__tree$__pid " __more=1
        continue
      fi
      case $__tree in *" $2 "*) __tree="$__tree$__pid " __others="$__others $__pid" __more=1 ;; esac
    done
  done`

// launch returns the last part of the program, which becomes the command. It runs in the
// foreground, because background jobs of a shell ignore interrupts for ever.
func launch(args, env []string, mark, state string) string {
	var p strings.Builder
	prefix := ""
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if isName(name) {
			fmt.Fprintf(&p, "export %s=%s\n", name, quote(value))
		} else {
			prefix += " " + quote(e) // shells reject such a name, env does not
		}
	}
	if prefix != "" {
		prefix = "env" + prefix + " "
	}
	p.WriteString("unset OLDPWD\n") // cd has set it
	fmt.Fprintf(&p, "command -v %s >/dev/null || { echo there is no program %s >&2; exit 127; }\n", quote(args[0]), quote(args[0]))
	fmt.Fprintf(&p, "printf %%s \"$$\" >%s && printf '%%s\\n' %s && exec %s\"$1\" %s\n", quote(state), quote(mark), prefix, quoteAll(args))
	return p.String()
}

// isName reports whether a shell can have a variable of that name.
func isName(s string) bool {
	for i, c := range s {
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return s != ""
}

// exitNotThere is the exit status of small programs for a missing file.
const exitNotThere = 44

// The small programs below access files. Their content follows them on standard input; their output
// follows the mark on standard output.

func putProgram(mark, file string, mode uint32, size int) string {
	tmp := quote(file + ".new")
	return fmt.Sprintf("printf '%%s\\n' %s; mkdir -p %s && (umask 077; head -c %d >%s) && %s && chmod %o %s && mv -f %s %s",
		quote(mark), quote(parent(file)), size, tmp, whole(tmp, size), mode, tmp, tmp, quote(file))
}

func appendProgram(mark, file string, size int) string {
	f, tmp := quote(file), quote(file+"."+mark)
	return fmt.Sprintf("printf '%%s\\n' %s; umask 077; mkdir -p %s && head -c %d >%s && { %s && cat %s >>%s; __code=$?; rm -f %s; [ $__code "+
		"-eq 0 ]; } && wc -c <%s",
		quote(mark), quote(parent(file)), size, tmp, whole(tmp, size), tmp, f, tmp, f)
}

// whole returns a test that a file has arrived completely.
func whole(file string, size int) string { return fmt.Sprintf("[ $(wc -c <%s) -eq %d ]", file, size) }

func readProgram(mark, file string) string {
	return fmt.Sprintf("printf '%%s\\n' %s; [ -e %s ] || exit %d; cat %s", quote(mark), quote(file), exitNotThere, quote(file))
}

func renameProgram(mark, from, to string) string {
	return fmt.Sprintf("printf '%%s\\n' %s; [ -e %s ] || exit %d; mv -f %s %s", quote(mark), quote(from), exitNotThere, quote(from), quote(to))
}

// prepareProgram checks that a node has the required programs and creates the folder.
func prepareProgram(mark, dir string) string {
	return fmt.Sprintf("printf '%%s\\n' %s; command -v setsid >/dev/null || { echo the program setsid is missing >&2; exit 1; }; mkdir -p "+
		"%s/.coopr && chmod 700 %s/.coopr",
		quote(mark), quote(dir), quote(dir))
}

func askProgram(mark, script string, args []string) string {
	return fmt.Sprintf("printf '%%s\n' %s; set -- %s\n%s", quote(mark), quoteAll(args), script)
}

// parent returns a file's folder.
func parent(file string) string {
	if i := strings.LastIndexByte(file, '/'); i > 0 {
		return file[:i]
	}
	return "/"
}
