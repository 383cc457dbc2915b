package audit

import (
	"encoding/json"
	"testing"
)

func TestSeverity(t *testing.T) {
	for _, x := range []struct {
		kind, after string
		want        Severity
	}{
		{"operation.created", `{"status":"accepted"}`, Info},
		{"operation.changed", `{"status":"succeeded"}`, Info},
		{"operation.changed", `{"status":"failed","message":"x"}`, Error},
		{"operation.changed", `{"status":"rolled-back"}`, Warning},
		{"operation.changed", `{"message":"failed"}`, Info},
		{"cluster.changed", `{"status":"active"}`, Info},
		{"cluster.changed", `{"status":"inconsistent"}`, Warning},
		{"cluster.changed", `{"status":"failed"}`, Error},
		{"run.changed", `{"status":"FAILED"}`, Error},
		{"run.changed", `{"status":"KILLED"}`, Warning},
		{"task.finished", `{"status":"succeeded"}`, Info},
		{"task.finished", `{"status":"failed","attempt":2}`, Warning},
		{"task.retry", `{"status":"ready"}`, Warning},
		{"health.changed", `{"services":{"web":{"status":"healthy","since":5}}}`, Info},
		{"health.changed", `{"services":{"web":{"status":"unhealthy","since":5},"db":{"status":"healthy"}}}`, Warning},
		{"health.changed", `{"machine":"gone"}`, Warning},
		{"health.changed", `{"gaveUp":true,"attempts":5}`, Error},
		{"health.changed", `{"services":{"bytes":5000,"sha256":"00"}}`, Info},
		{"login", `{}`, Info},
		{"login.refused", `{"count":7}`, Warning},
		{"token.refused", `{}`, Warning},
		{"request.refused", `{}`, Warning},
		{"voter.quarantined", `{}`, Error},
		{"hold.created", `{}`, Warning},
		{"audit.pruned", `{"records":5}`, Info},
		{"audit.pruned", `{"records":5,"lost":{"siem":5}}`, Error},
		// The values of definitions are their authors'.
		{"definition.changed", `{"status":"failed","gaveUp":true}`, Info},
		{"tenant.changed", `[1,`, Info},
	} {
		r := Record{Type: x.kind, After: json.RawMessage(x.after)}
		if got := r.Severity(); got != x.want {
			t.Errorf("%s %s: %s, not %s", x.kind, x.after, got, x.want)
		}
	}
	for _, name := range severityNames {
		if s, err := ParseSeverity(name); err != nil || s.String() != name {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if s, err := ParseSeverity(""); s != Info || err != nil {
		t.Error(s, err)
	}
	if _, err := ParseSeverity("fatal"); err == nil {
		t.Error("fatal is a severity")
	}
}
