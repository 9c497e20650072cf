// Copyright (c) 2026, muster.training contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// rdmaplugin stands in for k8s-rdma-shared-dev-plugin on kernels without RDMA: it reads the same configuration, offers
// its resources to the kubelet over the same gRPC, and gives pods a device file and the folder of classes that stands
// for the kernel's.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	folder  = "/var/lib/kubelet/device-plugins"
	classes = "/opt/lab-rdma/class"
)

type resource struct {
	ResourceName string                 `json:"resourceName"`
	RdmaHcaMax   int                    `json:"rdmaHcaMax"`
	Selectors    map[string]interface{} `json:"selectors"`
}

type plugin struct {
	pb.UnimplementedDevicePluginServer
	count int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pb.Empty) (*pb.DevicePluginOptions, error) {
	return &pb.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pb.Empty, stream pb.DevicePlugin_ListAndWatchServer) error {
	devices := []*pb.Device{}
	for i := 0; i < p.count; i++ {
		devices = append(devices, &pb.Device{ID: fmt.Sprint(i), Health: pb.Healthy})
	}
	if err := stream.Send(&pb.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *pb.AllocateRequest) (*pb.AllocateResponse, error) {
	answer := &pb.AllocateResponse{}
	for range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pb.ContainerAllocateResponse{
			Devices: []*pb.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/infiniband/uverbs0", Permissions: "rw"}},
			Mounts:  []*pb.Mount{{HostPath: classes, ContainerPath: "/sys/class", ReadOnly: true}},
		})
	}
	return answer, nil
}

func serve(item resource) error {
	socket := filepath.Join(folder, "rdma-"+item.ResourceName+".sock")
	for {
		os.Remove(socket)
		listener, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		pb.RegisterDevicePluginServer(server, &plugin{count: item.RdmaHcaMax})
		go server.Serve(listener)
		if err := register(item, filepath.Base(socket)); err != nil {
			return err
		}
		// A kubelet that starts again removes the sockets.
		for _, err = os.Stat(socket); err == nil; _, err = os.Stat(socket) {
			time.Sleep(time.Second)
		}
		server.Stop()
	}
}

func register(item resource, endpoint string) error {
	address := "unix://" + filepath.Join(folder, "kubelet.sock")
	client, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = pb.NewRegistrationClient(client).Register(context.Background(), &pb.RegisterRequest{
		Version: pb.Version, Endpoint: endpoint, ResourceName: "rdma/" + item.ResourceName, Options: &pb.DevicePluginOptions{},
	})
	return err
}

func main() {
	var config struct {
		ConfigList []resource `json:"configList"`
	}
	text, err := os.ReadFile("/k8s-rdma-shared-dev-plugin/config.json")
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range config.ConfigList {
		if !regexp.MustCompile("^[a-zA-Z0-9_]+$").MatchString(item.ResourceName) || len(item.Selectors) == 0 {
			log.Fatalf("invalid resource %+v", item)
		}
	}
	for _, item := range config.ConfigList {
		go func() { log.Fatal(serve(item)) }()
	}
	select {}
}
