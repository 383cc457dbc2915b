package aws

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/pagetest"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/testing/doubles/ec2"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// TestInstances runs all tests with Amazon's library against the EC2 double and real SSH.
func TestInstances(t *testing.T) {
	fleet := providertest.NewFleet(t)
	s := &ec2.Server{AccessKey: "RIGHT", Image: "ami-1", Halt: fleet.Halt, Boot: func(data string) string {
		var d struct {
			Users []struct {
				Keys []string `yaml:"ssh_authorized_keys"`
			}
		}
		if err := yaml.Unmarshal([]byte(data), &d); err != nil || len(d.Users) != 1 {
			t.Errorf("user data %q: %v", data, err)
			return ""
		}
		return fleet.Boot(d.Users[0].Keys[0])
	}}
	api := providertest.NewTroubled(t, s, func(_ *http.Request, body string) bool { return strings.Contains(body, "Action=RunInstances") })
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	(&providertest.Instances{
		Provider: p, Flavor: "t3.small", Image: "ami-1", Confirms: true, Troubled: api,
		Fields: map[string]any{
			"region": "eu-central-1", "access_key": "RIGHT", "secret_key": "s", "endpoint": api.URL, "ssh_port": providertest.FleetPort,
			"ssh_dir": t.TempDir(),
			"zones":   "eu-central-1a,eu-central-1b", "subnets": "eu-central-1a=subnet-1,eu-central-1b=subnet-2",
		},
		Throttled: providertest.Says(503, "", ec2.Refusal("RequestLimitExceeded", "Request limit exceeded.")),
		Quota: providertest.Says(400, "", ec2.Refusal("VcpuLimitExceeded",
			"You have requested more vCPU capacity than your current vCPU limit (quota) allows.")),
		Refused: providertest.Says(403, "", ec2.Refusal("UnauthorizedOperation", "You are not authorized to perform this operation.")),
	}).Try(t)
	// Wrong credentials are reported before anything is done.
	wrong := providertest.New(t, map[string]any{"region": "eu-central-1", "access_key": "WRONG", "secret_key": "s", "endpoint": api.URL}, "n")
	wrong.Image = "ami-1"
	if err := wrong.Do("CREATE", p.Create); err == nil || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("wrong credentials: %v", err)
	}
}

// TestNoCredentials checks that missing credentials are reported as such, not as a lost answer
// after which the machine might exist.
func TestNoCredentials(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	c := open(&instance.Fields{Values: map[string]any{"region": "r", "endpoint": "http://127.0.0.1:1"}})
	if _, err := c.List(t.Context(), instance.Tags{}); instance.KindOf(err) != instance.Credentials {
		t.Errorf("%v, which is %v", err, instance.KindOf(err))
	}
}

func TestFields(t *testing.T) {
	f := &instance.Fields{Values: map[string]any{"access_key": "a", "endpoint": "x", "public_address": "maybe"}}
	open(f)
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "endpoint public_address region secret_key" {
		t.Errorf("%s: %v", got, f.Faults)
	}
	c := open(&instance.Fields{Values: map[string]any{"region": "r", "subnets": "a=s1", "public_address": true, "security_groups": "g1,g2",
		"key_name": "k", "instance_profile": "p"}}).(*cloud)
	in, err := c.request(&instance.Spec{Name: "n", Flavor: "t3.small", Image: "ami-1", Zone: "a"})
	if err != nil || *in.NetworkInterfaces[0].SubnetId != "s1" || len(in.NetworkInterfaces[0].Groups) != 2 || *in.KeyName != "k" ||
		*in.IamInstanceProfile.Name != "p" || in.SubnetId != nil {
		t.Errorf("%+v %v", in, err)
	}
	if _, err := c.request(&instance.Spec{Name: "n", Flavor: "t3.small", Image: "ami-1", Zone: "b"}); instance.KindOf(
		err) != instance.Invalid {
		t.Errorf("a zone without a subnet: %v", err)
	}
}

func TestPage(t *testing.T) {
	const docs = "../../../docs/plugins/"
	p := New(ssh.Keys(nil))
	defer p.Close()
	pagetest.Check(t, p, docs+"aws.md", docs+"instances.md")
}
