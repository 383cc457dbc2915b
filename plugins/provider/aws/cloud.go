package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
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

// New returns the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "aws", Label: "Amazon EC2", Description: "Nodes are instances of Amazon EC2"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"region": {Label: "Region", Type: "text", Tip: "Such as eu-central-1"},
				"access_key": {Label: "Access key id", Type: "text", Tip: "Default: the credentials of the agent's machine (a role, ~/.aws)",
					Sensitive: true},
				"secret_key":      {Label: "Secret access key", Type: "password"},
				"session_token":   {Label: "Session token", Type: "password"},
				"subnets":         {Label: "Subnets", Type: "text", Tip: "One id, or comma-separated ZONE=ID; default: the default subnet"},
				"security_groups": {Label: "Security groups", Type: "text", Tip: "Comma-separated ids; default: the default group"},
				"public_address":  {Label: "Public address", Type: "checkbox", Tip: "Assign a public address even if the subnet does not"},
				"key_name": {Label: "Key pair", Type: "text",
					Tip: "Name of a key pair of the account, installed in addition to the node's own key"},
				"instance_profile": {Label: "Instance profile", Type: "text", Tip: "Name of the role of the machines"},
				"endpoint":         {Label: "API", Type: "text", Tip: "Address of another cloud with EC2's API"},
			},
			Required: [][]string{{"region"}},
		}},
	}})
}

// cloud is an account in a region.
type cloud struct {
	region, key, secret, session, endpoint string
	subnet                                 string            // for every zone that subnets lacks
	subnets                                map[string]string // by zone
	groups                                 []string
	public                                 bool
	keyName, profile                       string
	guard                                  *instance.Guard

	api func() (*ec2.Client, error)
}

func open(f *instance.Fields) instance.Cloud {
	c := &cloud{
		guard:  f.Guard,
		region: f.Need("region"), key: f.Text("access_key", ""), secret: f.Text("secret_key", ""), session: f.Text("session_token", ""),
		endpoint: f.URL("endpoint", ""),
		groups:   f.List("security_groups"), public: f.Bool("public_address"), keyName: f.Text("key_name", ""),
		profile: f.Text("instance_profile", ""), subnets: map[string]string{},
	}
	if (c.key == "") != (c.secret == "") {
		f.Faults.Add("secret_key", "access_key and secret_key have to be set together")
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

// tries is the maximum number of attempts at a request that is throttled or fails.
const tries = 6

// connect finds the credentials, without a request to the API.
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
		if c.guard != nil {
			o.HTTPClient = &http.Client{Transport: c.guard.Transport()}
		}
		if c.endpoint != "" {
			o.BaseEndpoint = &c.endpoint
		}
	}), nil
}

// fault classifies the API's errors by their codes.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		kind := instance.KindOf(err)
		if kind == instance.Other {
			kind = instance.Unclear // the error is not an answer of the API, so the request may have been lost
		}
		return &instance.Fault{Kind: kind, Err: err}
	}
	return instance.Faultf(kindOf(api.ErrorCode()), "%s: %s", api.ErrorCode(), api.ErrorMessage())
}

// kindOf returns the kind of an error code of EC2.
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

// machine converts an instance. It returns false if the instance is being terminated or is not
// Coopr's.
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

// List returns the instances with Coopr's tags.
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

// literal escapes the characters that filters treat as patterns.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(s)
}

// Create requests an instance. For requests with the same token EC2 returns the same instance for
// as long as it remembers the token, even after the instance has been terminated. In that case the
// next token is derived from the token and the terminated instance.
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
			return nil, instance.Faultf(instance.Unclear, "one instance was requested, but %d were created", len(got.Instances))
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

// request returns the request for a machine.
func (c *cloud) request(s *instance.Spec) (*ec2.RunInstancesInput, error) {
	if s.Flavor == "" {
		return nil, instance.Faultf(instance.Invalid, "the hardware type has no flavor (providermap: flavor), such as t3.small")
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
				return nil, instance.Faultf(instance.Invalid, "the field subnets has no subnet in zone %s", s.Zone)
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

// Delete requests an instance's termination.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	api, err := c.api()
	if err != nil {
		return err
	}
	_, err = api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{m.ID}})
	return fault(err)
}
