//! Reports from the field that concern paths and their recovery, by our numbers; the scenarios name
//! the public sources.

use r2ccl_sim::{Scenario, Settings};

/// Plays a scenario with its usual seed.
fn play(name: &str) {
    let scenario = Scenario::named(name).expect("a scenario of that name");
    match scenario.play(Settings::default()) {
        Ok(figures) => println!("{name}: {}", figures.join("; ")),
        Err(failure) => panic!("r2ccl sim --scenario {name}: {failure:?}"),
    }
}

macro_rules! reports {
    ($($test:ident: $name:literal, $source:literal;)*) => {
        $(
            #[doc = $source]
            #[test]
            fn $test() {
                play($name);
            }
        )*
    };
}

reports! {
    field_report_01_repaired_port:
        "field-report-01", "<https://github.com/NVIDIA/nccl/issues/2157>";
    field_report_02_warm_standby:
        "field-report-02", "<https://github.com/NVIDIA/nccl/issues/2310>";
    field_report_03_repair_after_days:
        "outage-48h", "<https://github.com/NVIDIA/nccl/issues/2323>";
    field_report_04_borrowed_nics:
        "field-report-04", "<https://github.com/NVIDIA/nccl/issues/2192>";
    field_report_05_up_is_not_usable:
        "field-report-05", "<https://github.com/kvcache-ai/Mooncake/issues/2960>";
    field_report_06_swallowed_work:
        "field-report-06", "<https://github.com/kvcache-ai/Mooncake/pull/2427>";
    field_report_07_no_reset:
        "field-report-07", "<https://github.com/ROCm/rocm-systems/pull/6145>";
    field_report_10_two_planes: "field-report-10", "<https://github.com/NVIDIA/nccl/issues/1804>";
    field_report_11_rails_only: "field-report-11", "<https://github.com/NVIDIA/nccl/issues/2013>";
    field_report_12_no_address_yet:
        "field-report-12", "<https://github.com/NVIDIA/nccl/pull/2183>";
    field_report_16_no_path_left: "field-report-16", "<https://github.com/NVIDIA/nccl/issues/1434>";
    field_report_17_device_dies: "field-report-17", "<https://github.com/NVIDIA/nccl/issues/230>";
    field_report_20_toggling_port: "field-report-20", "<https://github.com/ROCm/rccl/issues/1423>";
    field_report_21_down_at_start:
        "field-report-21", "<https://github.com/uccl-project/uccl/issues/120>";
    field_report_22_lossy_switch:
        "field-report-22", "<https://github.com/uccl-project/uccl/issues/117>";
    field_report_25_late_writes:
        "field-report-25", "<https://github.com/ydb-platform/ydb/pull/44707>";
    field_report_26_moved_stream: "field-report-26", "<https://github.com/NVIDIA/nccl/issues/998>";
    field_report_27_flaps: "field-report-27", "<https://github.com/NVIDIA/nccl/issues/1557>";
    field_report_28_failback: "field-report-28", "<https://github.com/NVIDIA/nccl/issues/2044>";
    field_report_32_one_rail: "field-report-32", "<https://github.com/openucx/ucx/issues/7846>";
    field_report_35_idle_cable:
        "field-report-35", "<https://github.com/ofiwg/libfabric/issues/7803>";
}
