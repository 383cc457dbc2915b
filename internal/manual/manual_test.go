package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/testing/programs"
)

// program returns a program with commands whose texts have what roff would take for its own.
func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Do things", Long: "Does things.\n\n.hidden is shown, as is \\n.\n\n  kept  shape"}
	root.PersistentFlags().StringP("addr", "a", "", "address `HOST` of something")
	show := &cobra.Command{Use: "show NAME", Short: "Show a thing", Example: "  prog show 'x'\n'quoted", Run: func(*cobra.Command, []string) {}}
	show.Flags().Bool("all-of-it", false, "show\n.all")
	root.AddCommand(show, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}}, Command())
	return root
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	c := program()
	c.SetArgs([]string{"manual", dir})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"man/*", "completion/*"} {
		list, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			files = append(files, filepath.Base(f))
		}
	}
	if got := strings.Join(files, " "); !strings.Contains(got, "prog-show.1 prog.1") || !strings.HasSuffix(got, "prog.bash prog.fish prog.zsh") ||
		strings.Contains(got, "secret") || strings.Contains(got, "manual") {
		t.Errorf("%s was written", got)
	}
	page, err := os.ReadFile(filepath.Join(dir, "man", "prog-show.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH PROG\\-SHOW 1", "\\fB\\-\\-all\\-of\\-it\\fR", "\n\\&.all\n", "\n\\&'quoted\n", ".SH GLOBAL OPTIONS",
		"\\fB\\-a\\fR, \\fB\\-\\-addr\\fR \\fIHOST\\fR", ".BR prog (1)\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	bash, err := os.ReadFile(filepath.Join(dir, "completion", "prog.bash"))
	if err != nil || !strings.Contains(string(bash), "__start_prog") {
		t.Errorf("the completion of bash: %v", err)
	}
}

// TestPageIsRoff checks that groff accepts every page without a warning, and shows the lines that look like requests.
func TestPageIsRoff(t *testing.T) {
	cmd := exec.Command(programs.Installed(t, "groff"), "-man", "-Tascii", "-ww", "-P-c")
	cmd.Stdin = strings.NewReader(Page(program()))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "warning") || !strings.Contains(string(out), ".hidden is shown, as is \\n.") {
		t.Errorf("%v: %s", err, out)
	}
}
