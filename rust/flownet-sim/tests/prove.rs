//! Every interleaving of the small cases.

use flownet_sim::cases::small;

#[test]
fn every_interleaving_of_every_small_case_is_safe_and_ends_with_all_delivered() {
    for proof in small() {
        let explored = proof.explore();
        assert!(explored.failure.is_none(), "{}: {:?}", proof.name, explored.failure);
        assert!(explored.longest_path.is_some(), "{}: a state can be reached from itself", proof.name);
        assert!(explored.states > 1_000, "{}: only {} states", proof.name, explored.states);
    }
}
