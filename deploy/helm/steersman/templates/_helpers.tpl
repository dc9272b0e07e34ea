{{/* The name of the release's objects; suffixes of components are added to it, so it leaves room for them. */}}
{{- define "steersman.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- /* A release's name may have dots, the name of a Service may not. */ -}}
{{- $full | replace "." "-" | trunc 45 | trimAll "-" -}}
{{- end -}}

{{/* The name of a component: list $ "service". The scheduler has the release's own. */}}
{{- define "steersman.name" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $fullname := include "steersman.fullname" $root -}}
{{- if eq $component "scheduler" }}{{ $fullname }}{{ else }}{{ $fullname }}-{{ $component }}{{ end -}}
{{- end -}}

{{/* Labels that select the pods of a component; they may never change, since selectors of Deployments cannot. */}}
{{- define "steersman.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "steersman.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{ include "steersman.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}

{{/* Name and labels of an object: list $ "service"; a third item is a suffix of the name. */}}
{{- define "steersman.metadata" -}}
name: {{ printf "%s%s" (include "steersman.name" .) (gt (len .) 2 | ternary (last .) "") | quote }}
labels:
  {{- include "steersman.labels" . | nindent 2 }}
{{- end -}}

{{/* The account of a component's pods: list $ "service" .Values.service. */}}
{{- define "steersman.serviceAccountName" -}}
{{- $account := (index . 2).serviceAccount -}}
{{- default (include "steersman.name" .) $account.name -}}
{{- end -}}

{{- define "steersman.serviceAccount" -}}
{{- $account := (index . 2).serviceAccount -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "steersman.serviceAccountName" . | quote }}
  labels:
    {{- include "steersman.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false # the pods that want it say so
{{- end -}}
{{- end -}}

{{/* Who a role is bound to. */}}
{{- define "steersman.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "steersman.serviceAccountName" . | quote }}
    namespace: {{ (index . 0).Release.Namespace | quote }}
{{- end -}}

{{/* An image: list $ .Values.image. */}}
{{- define "steersman.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $version := printf ":%s" (default $root.Chart.AppVersion $image.tag) -}}
{{- $digest := printf "@%s" $image.digest -}}
image: {{ $image.repository }}{{ ternary $digest $version (not (empty $image.digest)) }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end -}}

{{/* Labels of a component's pods. */}}
{{- define "steersman.podLabels" -}}
labels:
  {{- include "steersman.labels" . | nindent 2 }}
  {{- with (index . 2).podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What Pod Security "restricted" asks of a pod, with the image's user. */}}
{{- define "steersman.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "steersman.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Where a component's pods run, and with which priority. */}}
{{- define "steersman.placement" -}}
{{- $values := index . 2 -}}
{{- $selector := include "steersman.selectorLabels" . | fromYaml -}}
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := merge (dict "labelSelector" (dict "matchLabels" $selector)) . }}
  - {{ hasKey . "labelSelector" | ternary . $own | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What every pod may write to; its root file system is read-only. */}}
{{- define "steersman.cacheMounts" -}}
- name: cache
  mountPath: /var/cache/steersman
- name: tmp
  mountPath: /tmp
{{- end -}}

{{- define "steersman.cacheVolumes" -}}
- name: cache
  emptyDir:
    sizeLimit: 256Mi
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end -}}

{{/* Probes of a server: dict "port" "metrics" "scheme" "HTTP" "startup" "a comment". */}}
{{- define "steersman.probes" -}}
startupProbe: # {{ .startup }}
  httpGet: &health
    path: /healthz
    port: {{ .port }}
    scheme: {{ .scheme }}
  periodSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: *health
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .port }}
    scheme: {{ .scheme }}
  periodSeconds: 5
{{- end -}}

{{/* Whether a policy is a file of a ConfigMap or Secret: "true" or "". */}}
{{- define "steersman.hasPolicyFile" -}}
{{- if or .file.configMap .file.secret }}true{{ end -}}
{{- end -}}

{{/* What --policy is given. A file that is mounted as a folder is replaced while the pod runs. */}}
{{- define "steersman.policy" -}}
{{- if include "steersman.hasPolicyFile" . }}/etc/steersman-policy/{{ .file.key }}{{ else }}{{ .name }}{{ end -}}
{{- end -}}

{{- define "steersman.policyMount" -}}
{{- if include "steersman.hasPolicyFile" . }}
- name: policy
  mountPath: /etc/steersman-policy
  readOnly: true
{{- end }}
{{- end -}}

{{/* The volume of a policy file: list .policy "optional", which is true for a pod that starts without the file. */}}
{{- define "steersman.policyVolume" -}}
{{- $policy := index . 0 -}}
{{- if $policy.file.configMap }}
- name: policy
  configMap:
    name: {{ $policy.file.configMap | quote }}
    optional: {{ index . 1 }}
{{- else if $policy.file.secret }}
- name: policy
  secret:
    secretName: {{ $policy.file.secret | quote }}
    optional: {{ index . 1 }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* The ConfigMap with the telemetry file, "" without one. */}}
{{- define "steersman.telemetryConfigMap" -}}
{{- if .Values.telemetry.existingConfigMap }}{{ .Values.telemetry.existingConfigMap }}
{{- else if .Values.telemetry.configuration }}{{ include "steersman.fullname" . }}-telemetry{{ end -}}
{{- end -}}

{{- define "steersman.telemetryMount" -}}
{{- if include "steersman.telemetryConfigMap" . }}
- name: telemetry
  mountPath: /etc/steersman-telemetry
  readOnly: true
{{- end }}
{{- end -}}

{{- define "steersman.telemetryVolume" -}}
{{- with include "steersman.telemetryConfigMap" . }}
- name: telemetry
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "steersman.telemetryPath" -}}
/etc/steersman-telemetry/{{ .Values.telemetry.key }}
{{- end -}}

{{/* A budget for a component of several replicas; with one it would block every drain. */}}
{{- define "steersman.disruptionBudget" -}}
{{- $values := index . 2 -}}
{{- if and $values.podDisruptionBudget.enabled (gt (int $values.replicaCount) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "steersman.metadata" (list (index . 0) (index . 1)) | nindent 2 }}
spec:
  minAvailable: {{ $values.podDisruptionBudget.minAvailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "steersman.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/* Who reaches a port: list $ component .Values.component port components. */}}
{{- define "steersman.networkPolicy" -}}
{{- $root := index . 0 -}}
{{- $policy := (index . 2).networkPolicy -}}
{{- if $policy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "steersman.metadata" (list $root (index . 1)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "steersman.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: {{ $root.Chart.Name }}
              app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
            matchExpressions:
              - key: app.kubernetes.io/component
                operator: In
                values: [{{ index . 4 | join ", " }}]
        {{- with $policy.peers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - port: {{ index . 3 }}
{{- end -}}
{{- end -}}

{{/* Where a program keeps what it has planned. */}}
{{- define "steersman.cacheEnv" -}}
- name: STEERSMAN_CACHE_DIR
  value: /var/cache/steersman
{{- end -}}

{{- define "steersman.podIpEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end -}}

{{/* Rules of who reads the cluster as service and dashboard do: they look, and change nothing. */}}
{{- define "steersman.readerRules" -}}
rules:
  - apiGroups: [""]
    resources: [nodes, pods]
    verbs: [list, watch]
  - apiGroups: [""]
    resources: [namespaces]
    verbs: [list, watch] # asked for once a pod's affinity selects namespaces by labels
  - apiGroups: [resource.k8s.io]
    resources: [resourceclaims, resourceslices, deviceclasses]
    verbs: [list, watch] # asked for once a pod has a ResourceClaim or requests what nodes may offer by DRA
  - apiGroups: [""]
    resources: [services, replicationcontrollers]
    verbs: [list, watch] # these two rules: what the policy kube-default spreads pods of, no other policy asks for them
  - apiGroups: [apps]
    resources: [replicasets, statefulsets]
    verbs: [list, watch]
{{- end -}}

{{/* A ClusterRole is bound to a component's account. */}}
{{- define "steersman.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "steersman.metadata" (list (index . 0) (index . 1)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "steersman.name" . | quote }}
{{ include "steersman.subjects" . }}
{{- end -}}

{{/* Leader election: list $ component .Values.component, whose schedulerName is the Lease's name. */}}
{{- define "steersman.leaderElection" -}}
{{- $metadata := include "steersman.leaderElection.metadata" . }}
# Leader election. Creation cannot be limited by name. The name of these objects is that of the scheduler, in one
# namespace for all releases: Helm refuses a second release whose scheduler has the same name.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- $metadata | nindent 2 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ (index . 2).schedulerName | quote }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ printf "steersman-leads-%s" (index . 2).schedulerName | quote }}
{{ include "steersman.subjects" . }}
{{- end -}}

{{- define "steersman.leaderElection.metadata" -}}
name: {{ printf "steersman-leads-%s" (index . 2).schedulerName | quote }}
namespace: {{ (index . 0).Values.leaseNamespace | quote }}
labels:
  {{- include "steersman.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- end -}}
