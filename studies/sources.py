"""Where the traces of studies come from, how to get them, and the checksums of the files that were used."""

from __future__ import annotations

SOURCES = {
    "openb": (
        "openb, of `data/csv` in <https://github.com/hkust-adsl/kubernetes-scheduler-simulator> (Apache License 2.0). "
        "It is part of the package. SHA-256 of `openb_node_list_gpu_node.csv` "
        "`2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5`, of `openb_pod_list_default.csv` "
        "`1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8`."
    ),
    "philly": (
        "`philly_first.csv` in the folder `$STEERSMAN_TRACES`: the first part, until 23 October 2017, of Microsoft's "
        "Philly trace (<https://github.com/msr-fiddle/philly-traces>) as the table `timestamp,duration,num_gpus,"
        "gpu_time,cluster` of Sia's artifact. SHA-256 "
        "`130dec66896f1aec7caf7f1f143b733cdf588be30c70dac3887a42a7b9179d38`."
    ),
    "lublin": (
        "`lublin_256.swf` and `lublin_256_new2.swf` in the folder `$STEERSMAN_TRACES`, of `data` in "
        "<https://github.com/DIR-LAB/deep-batch-scheduler>. SHA-256 "
        "`a394ab3d81179ebcf645a1cbd593a60b6dff7f11a510e1e6285c45f43310c962` and "
        "`bee7e959a6b85844eafe7989d62c55ae43e096fd617cddf37423327967a1ed2d`."
    ),
    "swf": (
        "`nasa_first.swf.gz` and `lcg_first.swf.gz` in the folder `$STEERSMAN_TRACES`, the first 60 % of the lines of "
        "the logs *NASA iPSC* and *LCG* of the Parallel Workloads Archive "
        "(<https://www.cs.huji.ac.il/labs/parallel/workload>). SHA-256 "
        "`aec6ae2de02f373d13bcf27ae47eaef3f0ca685ea8c29a60daf1172dc6a858ac` and "
        "`32838d2a0591119f08080d2ada7e0c007b9c5f75b740b9471dc9f60f174e9000`."
    ),
    "aaml": (
        "`data_20231210_*.csv`, six files in the folder `$STEERSMAN_TRACES`, of "
        "<https://github.com/acsheller/AAML>. SHA-256 of the first, `data_20231210_154341.csv`: "
        "`15d8b443ef6fa55735faf0908cac47c766b1fc8d0e988d2f51ddceddd7871edb`."
    ),
}
"""A sentence a source, by the name that `DATA` of a study has."""
