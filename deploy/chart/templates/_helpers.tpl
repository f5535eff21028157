{{- define "portico.image" -}}
{{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ $image = printf "%s@%s" $image . }}{{ end -}}
{{ $image }}
{{- end }}

{{- define "portico.labels" -}}
app.kubernetes.io/name: portico-{{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: portico
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* The reports of nodes, the key of their heartbeats and the rights to them are there. */}}
{{- define "portico.namespace" -}}
{{- if ne .Release.Namespace "kube-system" }}
{{- fail "Portico's objects are in kube-system: install with --namespace kube-system" }}
{{- end -}}
kube-system
{{- end }}

{{/* An API server that is reached without any Service. */}}
{{- define "portico.apiServer" -}}
{{- if .Values.apiServer.host -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- end }}

{{/* Where the pods of a part run, and before whom: `values` are the part's. */}}
{{- define "portico.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "portico.podAnnotations" -}}
{{- with .podAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A program that needs nothing of the node. */}}
{{- define "portico.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "portico.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Of several replicas not two on a node, if it can be helped. */}}
{{- define "portico.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: portico-{{ .part }}
        app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{/* The rights of the controller. Those to pools, their claims and the key of the nodes are only metal's; gce keeps its id of the cluster where
     others in that cloud have it. */}}
{{- define "portico.controllerRights" -}}
{{- $provider := .Values.controller.provider }}
{{- if eq $provider "metal" }}
{{ .Files.Get "rbac/controller.yaml" }}
{{- else }}
{{- range $text := splitList "\n---\n" (.Files.Get "rbac/controller.yaml") }}
{{- $object := fromYaml $text }}
{{- if $object.rules }}
{{- $rules := list }}
{{- range $object.rules }}
{{- $resources := without .resources "namespaces" "secrets" "addresspools" "addresspools/status" "addressblocks" }}
{{- if $resources }}
{{- $rules = append $rules (set . "resources" $resources) }}
{{- end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- if eq $provider "gce" }}
---
{{ .Files.Get "rbac/gce.yaml" }}
{{- end }}
{{- end }}

{{/* Which load balancers are the controller's: the same for the one that works and for the one that takes them back. */}}
{{- define "portico.balancers" -}}
{{- $controller := .Values.controller -}}
- --cloud-provider={{ $controller.provider }}
{{- if $controller.cloudConfigSecret }}
- --cloud-config=/etc/portico/cloud.conf
{{- end }}
- --cluster-name={{ $controller.clusterName }}
{{- with $controller.loadBalancerClass }}
- --load-balancer-class={{ . }}
{{- end }}
- --node-healthz-port={{ .Values.node.healthzPort }}
- --leader-elect=true
{{- end }}

{{- define "portico.controllerEnvironment" -}}
{{- with include "portico.apiServer" . -}}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.controller.environmentSecrets }}
envFrom:
{{- range . }}
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
