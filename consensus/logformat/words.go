package logformat

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// Words maps the values of an enum of the log to the words that the API and the domain use. The
// value 0 has no word.
type Words[E ~int32, W ~string] map[E]W

// Number returns the enum's value for a word, or 0 for an unknown word.
func (w Words[E, W]) Number(word W) E {
	for n, x := range w {
		if x == word {
			return n
		}
	}
	return 0
}

// Word returns the word for an enum's value, or "" for an unknown value.
func (w Words[E, W]) Word(n E) W { return w[n] }

// number is Words.Number for a conversion, which fails on a word that the log has no number for.
func number[E ~int32, W ~string](e *encoder, w Words[E, W], word W) E {
	n := w.Number(word)
	if n == 0 && word != "" && e.err == nil {
		e.err = fmt.Errorf("the log has no number for the %T %q", word, word)
	}
	return n
}

// OperationOrders are the orders about an operation.
var OperationOrders = Words[pb.OperationOrder, string]{
	pb.OperationOrder_OPERATION_ORDER_PAUSE:         "pause",
	pb.OperationOrder_OPERATION_ORDER_RESUME:        "resume",
	pb.OperationOrder_OPERATION_ORDER_ABORT:         "abort",
	pb.OperationOrder_OPERATION_ORDER_ROLLBACK:      "rollback",
	pb.OperationOrder_OPERATION_ORDER_GIVE_UP:       "give up",
	pb.OperationOrder_OPERATION_ORDER_STOP_RETRYING: "stop retrying",
}

// ClusterOrders are the orders about a cluster.
var ClusterOrders = Words[pb.ClusterOrder, string]{
	pb.ClusterOrder_CLUSTER_ORDER_RESOLVE:         "resolve",
	pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY:  "pause-recovery",
	pb.ClusterOrder_CLUSTER_ORDER_RESUME_RECOVERY: "resume-recovery",
	pb.ClusterOrder_CLUSTER_ORDER_LABEL:           "label",
	pb.ClusterOrder_CLUSTER_ORDER_LEASE:           "lease",
	pb.ClusterOrder_CLUSTER_ORDER_WARN:            "warn",
}

// PlanOrders are the orders about a plan (engine/plan/tree).
var PlanOrders = Words[pb.PlanOrder, string]{
	pb.PlanOrder_PLAN_ORDER_START:          "start",
	pb.PlanOrder_PLAN_ORDER_STOP:           "stop",
	pb.PlanOrder_PLAN_ORDER_INTERRUPT:      "interrupt",
	pb.PlanOrder_PLAN_ORDER_CONTINUE:       "continue",
	pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE: "forceComplete",
	pb.PlanOrder_PLAN_ORDER_RESTART:        "restart",
}

// RotationKinds are the kinds of keys that are rotated.
var RotationKinds = Words[record.RotationKind, string]{
	record.RotationKind_ROTATION_KIND_KEYRING: roster.KindKeyring,
	record.RotationKind_ROTATION_KIND_ROOT:    roster.KindRoot,
	record.RotationKind_ROTATION_KIND_GOSSIP:  roster.KindGossip,
	record.RotationKind_ROTATION_KIND_CA:      roster.KindCA,
	record.RotationKind_ROTATION_KIND_JWKS:    roster.KindJWKS,
}

// RotationPhases are the phases of a rotation.
var RotationPhases = Words[record.RotationPhase, string]{
	record.RotationPhase_ROTATION_PHASE_BEGUN:  roster.RotationBegun,
	record.RotationPhase_ROTATION_PHASE_SPREAD: roster.RotationSpread,
	record.RotationPhase_ROTATION_PHASE_ACTIVE: roster.RotationActive,
	record.RotationPhase_ROTATION_PHASE_RETIRE: roster.RotationRetire,
	record.RotationPhase_ROTATION_PHASE_DONE:   roster.RotationDone,
}

// SettingKinds are the kinds of settings of runs.
var SettingKinds = Words[pb.SettingKind, string]{
	pb.SettingKind_SETTING_KIND_PROFILE:     "profile",
	pb.SettingKind_SETTING_KIND_PROGRAM:     "program",
	pb.SettingKind_SETTING_KIND_SCHEDULE:    "schedule",
	pb.SettingKind_SETTING_KIND_PREFERENCES: "preferences",
	pb.SettingKind_SETTING_KIND_SECRET:      "secret",
}

// SettingOrders are the orders about a setting.
var SettingOrders = Words[pb.SettingOrder, string]{
	pb.SettingOrder_SETTING_ORDER_PUT:     "put",
	pb.SettingOrder_SETTING_ORDER_CREATE:  "create",
	pb.SettingOrder_SETTING_ORDER_DELETE:  "delete",
	pb.SettingOrder_SETTING_ORDER_ENABLE:  "enable",
	pb.SettingOrder_SETTING_ORDER_DISABLE: "disable",
}

// ResourceOrders are the orders about a plugin resource.
var ResourceOrders = Words[pb.ResourceOrder, string]{
	pb.ResourceOrder_RESOURCE_ORDER_STAGE:    model.StageResource,
	pb.ResourceOrder_RESOURCE_ORDER_RECALL:   model.RecallResource,
	pb.ResourceOrder_RESOURCE_ORDER_ACTIVATE: model.ActivateResource,
	pb.ResourceOrder_RESOURCE_ORDER_DELETE:   model.DeleteResource,
}

var runEventKinds = Words[record.RunEventKind, profile.Kind]{
	record.RunEventKind_RUN_EVENT_KIND_ASKING:      profile.Asking,
	record.RunEventKind_RUN_EVENT_KIND_RETURNED:    profile.Returned,
	record.RunEventKind_RUN_EVENT_KIND_SAW:         profile.Saw,
	record.RunEventKind_RUN_EVENT_KIND_READY:       profile.Ready,
	record.RunEventKind_RUN_EVENT_KIND_REQUESTED:   profile.Requested,
	record.RunEventKind_RUN_EVENT_KIND_CALL_FAILED: profile.CallFailed,
	record.RunEventKind_RUN_EVENT_KIND_OVERDUE:     profile.Overdue,
	record.RunEventKind_RUN_EVENT_KIND_PROGRAM_IS:  profile.ProgramIs,
	record.RunEventKind_RUN_EVENT_KIND_BEGUN:       profile.Begun,
	record.RunEventKind_RUN_EVENT_KIND_EXPIRED:     profile.Expired,
	record.RunEventKind_RUN_EVENT_KIND_TIMED_OUT:   profile.TimedOut,
	record.RunEventKind_RUN_EVENT_KIND_STOP:        profile.Stop,
	record.RunEventKind_RUN_EVENT_KIND_TEAR_DOWN:   profile.TearDown,
	record.RunEventKind_RUN_EVENT_KIND_EXTEND:      profile.Extend,
	record.RunEventKind_RUN_EVENT_KIND_FORCE:       profile.Force,
	record.RunEventKind_RUN_EVENT_KIND_RETRY:       profile.Retry,
	record.RunEventKind_RUN_EVENT_KIND_PURGE:       profile.Purge,
}
