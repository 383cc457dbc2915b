package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

// New gives the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "aws", Label: "Amazon EC2", Description: "Nodes are instances of Amazon EC2"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"region": {Label: "Region", Type: "text", Tip: "Such as eu-central-1"},
				"access_key": {Label: "Access key id", Type: "text", Tip: "Empty: what the agent's machine has (a role, ~/.aws)",
					Sensitive: true},
				"secret_key":       {Label: "Secret access key", Type: "password"},
				"session_token":    {Label: "Session token", Type: "password"},
				"subnets":          {Label: "Subnets", Type: "text", Tip: "One id, or ZONE=ID with commas; empty: the default one"},
				"security_groups":  {Label: "Security groups", Type: "text", Tip: "Ids, with commas; empty: the default one"},
				"public_address":   {Label: "Public address", Type: "checkbox", Tip: "Give machines one where their subnet does not"},
				"key_name":         {Label: "Key pair", Type: "text", Tip: "Name of one of the account's, put on machines beside the node's own"},
				"instance_profile": {Label: "Instance profile", Type: "text", Tip: "Name of the role that machines have"},
				"endpoint":         {Label: "API", Type: "text", Tip: "Of another cloud that speaks EC2's protocol"},
			},
			Required: [][]string{{"region"}},
		}},
	}})
}

// cloud is an account in a region.
type cloud struct {
	region, key, secret, session, endpoint string
	subnet                                 string            // where zones do not matter
	subnets                                map[string]string // by zone
	groups                                 []string
	public                                 bool
	keyName, profile                       string

	api func() (*ec2.Client, error)
}

func open(f *instance.Fields) instance.Cloud {
	c := &cloud{
		region: f.Need("region"), key: f.Text("access_key", ""), secret: f.Text("secret_key", ""), session: f.Text("session_token", ""),
		endpoint: f.URL("endpoint", ""),
		groups:   f.List("security_groups"), public: f.Bool("public_address"), keyName: f.Text("key_name", ""),
		profile: f.Text("instance_profile", ""), subnets: map[string]string{},
	}
	if (c.key == "") != (c.secret == "") {
		f.Faults.Add("secret_key", "access_key and secret_key belong together")
	}
	for _, s := range f.List("subnets") {
		if zone, id, ok := strings.Cut(s, "="); ok {
			c.subnets[zone] = id
		} else {
			c.subnet = s
		}
	}
	c.api = sync.OnceValues(c.connect)
	return c
}

// tries is how often a request is sent that is throttled or fails.
const tries = 6

// connect finds credentials; nothing is asked of the API.
func (c *cloud) connect() (*ec2.Client, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRegion(c.region),
		config.WithRetryer(func() sdk.Retryer { return retry.AddWithMaxAttempts(retry.NewStandard(), tries) }),
	}
	if c.key != "" {
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.key, c.secret, c.session)))
	}
	cfg, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return nil, &instance.Fault{Kind: instance.Credentials, Err: err}
	}
	own := cfg.Credentials
	cfg.Credentials = sdk.CredentialsProviderFunc(func(ctx context.Context) (sdk.Credentials, error) {
		found, err := own.Retrieve(ctx)
		if err != nil {
			err = &instance.Fault{Kind: instance.Credentials, Err: err}
		}
		return found, err
	})
	return ec2.NewFromConfig(cfg, func(o *ec2.Options) {
		if c.endpoint != "" {
			o.BaseEndpoint = &c.endpoint
		}
	}), nil
}

// fault tells the API's errors apart by their codes.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		kind := instance.KindOf(err)
		if kind == instance.Other {
			kind = instance.Unclear // not the API's answer, so there was none
		}
		return &instance.Fault{Kind: kind, Err: err}
	}
	return instance.Faultf(kindOf(api.ErrorCode()), "%s: %s", api.ErrorCode(), api.ErrorMessage())
}

// kindOf gives what an error code of EC2 means.
func kindOf(code string) instance.Kind {
	switch code {
	case "AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "OptInRequired", "PendingVerification",
		"ExpiredToken", "RequestExpired", "Blocked", "MissingAuthenticationToken", "UnrecognizedClientException", "AccessDenied":
		return instance.Credentials
	case "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
		"InsufficientFreeAddressesInSubnet", "InsufficientAddressCapacity", "InsufficientCapacity":
		return instance.Capacity
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "Client.RequestLimitExceeded":
		return instance.Throttled
	case "InvalidInstanceID.NotFound":
		return instance.NotFound
	case "IdempotentParameterMismatch", "IncorrectInstanceState", "IncorrectState":
		return instance.Conflict
	case "InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable":
		return instance.Unclear
	}
	switch {
	case strings.HasSuffix(code, "LimitExceeded"), strings.HasSuffix(code, "QuotaExceeded"), strings.HasSuffix(code, "CountExceeded"):
		return instance.Quota
	case strings.HasPrefix(code, "Invalid"), strings.HasPrefix(code, "Missing"), strings.HasPrefix(code, "Unsupported"),
		strings.HasPrefix(code, "Unknown"):
		return instance.Invalid
	}
	return instance.Other
}

// machine gives an instance as it is; false where it is going, or not ours.
func machine(i *types.Instance) (instance.Machine, bool) {
	m := map[string]string{}
	for _, t := range i.Tags {
		m[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	of, ours := instance.TagsOf(m)
	out := instance.Machine{
		ID: sdk.ToString(i.InstanceId), Name: m["Name"], Tags: of, Public: sdk.ToString(i.PublicIpAddress),
		Private: sdk.ToString(i.PrivateIpAddress), Created: sdk.ToTime(i.LaunchTime),
	}
	if i.Placement != nil {
		out.Zone = sdk.ToString(i.Placement.AvailabilityZone)
	}
	if i.State == nil {
		return out, ours
	}
	switch i.State.Name {
	case types.InstanceStateNameRunning:
		out.State = instance.Running
	case types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		out.State = instance.Stopped
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		return out, false
	}
	return out, ours
}

// List gives the instances with our tags.
func (c *cloud) List(ctx context.Context, filter instance.Tags) ([]instance.Machine, error) {
	api, err := c.api()
	if err != nil {
		return nil, err
	}
	in := &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: sdk.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}}
	for name, value := range map[string]string{instance.TagMesh: filter.Mesh, instance.TagTenant: filter.Tenant,
		instance.TagCluster: filter.Cluster, instance.TagNode: filter.Node} {
		if value != "" {
			in.Filters = append(in.Filters, types.Filter{Name: sdk.String("tag:" + name), Values: []string{literal(value)}})
		}
	}
	var out []instance.Machine
	for pages := ec2.NewDescribeInstancesPaginator(api, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fault(err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if m, ours := machine(&i); ours && m.Tags.Fits(filter) {
					out = append(out, m)
				}
			}
		}
	}
	return out, nil
}

// literal takes the meaning from what filters take for patterns.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(s)
}

// Create asks for an instance. EC2 does a request with one token once, and for as
// long as it remembers gives the same instance again, one that is gone, too: then
// the token of the next follows from the two.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (*instance.Machine, error) {
	api, err := c.api()
	if err != nil {
		return nil, err
	}
	in, err := c.request(s)
	if err != nil {
		return nil, err
	}
	for token := s.Token; ; {
		in.ClientToken = &token
		got, err := api.RunInstances(ctx, in)
		if err != nil {
			return nil, fault(err)
		}
		if len(got.Instances) != 1 {
			return nil, instance.Faultf(instance.Unclear, "one instance was asked for, %d were given", len(got.Instances))
		}
		m, _ := machine(&got.Instances[0])
		m.Tags = s.Tags
		if st := got.Instances[0].State; st == nil || st.Name != types.InstanceStateNameShuttingDown &&
			st.Name != types.InstanceStateNameTerminated {
			return &m, nil
		}
		sum := sha256.Sum256([]byte(token + m.ID))
		token = hex.EncodeToString(sum[:16])
	}
}

// request is what is asked of EC2.
func (c *cloud) request(s *instance.Spec) (*ec2.RunInstancesInput, error) {
	if s.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type names no flavor (providermap: flavor), such as t3.small")
	}
	tags := []types.Tag{{Key: sdk.String("Name"), Value: &s.Name}}
	for k, v := range s.Tags.Map() {
		tags = append(tags, types.Tag{Key: sdk.String(k), Value: sdk.String(v)})
	}
	in := &ec2.RunInstancesInput{
		MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), ImageId: &s.Image, InstanceType: types.InstanceType(s.Flavor),
		UserData: sdk.String(base64.StdEncoding.EncodeToString(s.UserData)),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags},
			{ResourceType: types.ResourceTypeVolume, Tags: tags}},
		MetadataOptions: &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired},
	}
	subnet := c.subnet
	if s.Zone != "" {
		in.Placement = &types.Placement{AvailabilityZone: &s.Zone}
		if len(c.subnets) > 0 {
			if subnet = c.subnets[s.Zone]; subnet == "" {
				return nil, instance.Faultf(instance.Invalid, "the field subnets names none in zone %s", s.Zone)
			}
		}
	}
	if c.public {
		in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: sdk.Int32(0), AssociatePublicIpAddress: sdk.Bool(true),
			Groups: c.groups}}
		if subnet != "" {
			in.NetworkInterfaces[0].SubnetId = &subnet
		}
	} else {
		in.SecurityGroupIds = c.groups
		if subnet != "" {
			in.SubnetId = &subnet
		}
	}
	if c.keyName != "" {
		in.KeyName = &c.keyName
	}
	if c.profile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: &c.profile}
	}
	return in, nil
}

// Delete asks for an instance's end.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	api, err := c.api()
	if err != nil {
		return err
	}
	_, err = api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{m.ID}})
	return fault(err)
}
