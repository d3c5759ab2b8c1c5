//! Programs on several ranks, here threads that sum through shared memory.

use std::sync::{Arc, Barrier, Mutex};

use cfo_device::Device;
use cfo_engine::{Collective, Graph, Initial, Memory, Precision, Program, Shards};
use cfo_ranks::{Numbers, RankSum, Summing};

/// State that the threads share: each adds its part in turn, then all take the sum.
#[derive(Debug)]
struct Table {
    barrier: Barrier,
    parts: Mutex<Vec<Option<Vec<f32>>>>,
}

/// One thread as a rank.
#[derive(Debug)]
struct Thread {
    rank: usize,
    size: usize,
    table: Arc<Table>,
}

impl Collective for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, numbers: Numbers, order: RankSum) -> Summing {
        let Numbers::F32(own) = numbers else { panic!("the test computes in single precision") };
        let length = own.len();
        self.table.parts.lock().unwrap()[self.rank] = Some(own.clone());
        self.table.barrier.wait();
        let parts: Vec<Vec<f32>> =
            self.table.parts.lock().unwrap().iter().map(|part| part.clone().unwrap()).collect();
        self.table.barrier.wait();
        let sum = match order {
            RankSum::Any => (0..own.len()).map(|i| parts.iter().map(|part| part[i]).sum()).collect(),
            RankSum::Tree(own) => {
                let size = parts[0].len() / Shards::of(own.total, 0, self.size).count;
                let mut all: Vec<f32> = parts
                    .iter()
                    .enumerate()
                    .flat_map(|(rank, part)| {
                        part[..size * Shards::of(own.total, rank, self.size).count].to_vec()
                    })
                    .collect();
                cfo_ranks::add_in_tree(&mut all, size);
                all.resize(length, 0.0);
                all
            }
        };
        Summing::done(Numbers::F32(sum))
    }

    fn broadcast(&self, _: &[u8]) -> Vec<u8> {
        unreachable!("the CPU asks for sums alone")
    }

    fn gather(&self, _: &[u8]) -> Vec<Vec<u8>> {
        unreachable!("the CPU asks for sums alone")
    }
}

/// Values of three lengths that each shard computes from its number, summed over all shards in two messages.
fn run(ranks: usize, total: Option<usize>) -> Vec<Vec<Vec<f32>>> {
    let parts = Mutex::new(vec![None; ranks]);
    let table = Arc::new(Table { barrier: Barrier::new(ranks), parts });
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let table = Arc::clone(&table);
                // One pool each: a thread that waits for the others must not be one that they need.
                let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                scope.spawn(move || pool.install(|| one(Thread { rank, size: ranks, table }, total)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn one(thread: Thread, total: Option<usize>) -> Vec<Vec<f32>> {
    let (rank, size) = (thread.rank, thread.size);
    let mut graph = Graph::new();
    let base: Vec<_> = [5, 1, 70_000]
        .iter()
        .map(|&count| graph.parameter(&format!("w{count}"), [count], Initial::fan_in(3)).unwrap())
        .collect();
    let mut values = |number: usize| -> Vec<_> {
        let scaled = base.iter().map(|&w| graph.scale(w, 1.0 + 0.1 * number as f64).unwrap());
        scaled.collect::<Vec<_>>().into_iter().map(|node| graph.sin(node).unwrap()).collect()
    };
    let sums = match total {
        None => {
            let own = values(rank);
            let first = graph.all_reduce_each(&own[1..]).unwrap();
            let last = graph.all_reduce(own[0]).unwrap();
            [vec![last], first].concat()
        }
        Some(total) => {
            let shards = Shards::of(total, rank, size);
            let own: Vec<_> = (shards.first..shards.first + shards.count.max(1)).map(values).collect();
            graph.all_reduce_shards(shards, &own).unwrap()
        }
    };
    let ranks: Arc<dyn Collective> = Arc::new(thread);
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap().with_collective(Some(ranks));
    memory.initialize(&graph, 3).unwrap();
    let mut program = Program::compile(&graph, &sums, &memory).unwrap();
    // Repeated runs reuse the messages.
    program.run_many(&mut memory, 2).unwrap();
    (0..3).map(|output| program.output(output).unwrap()).collect()
}

#[test]
fn every_rank_gets_the_sum_of_all() {
    let all = run(3, None);
    assert!(all.iter().all(|one| one == &all[0]));
    // Ranks add the same values as the shards on one machine.
    let alone = run(1, Some(3));
    for (found, expected) in all[0].iter().flatten().zip(alone[0].iter().flatten()) {
        // Three numbers below 1 in another order: two roundings of single precision.
        assert!((found - expected).abs() <= 4.0 * f32::EPSILON, "{found} and {expected}");
    }
}

#[test]
fn shards_have_the_same_bits_on_any_number_of_ranks() {
    let alone = run(1, Some(5));
    for ranks in [2, 3, 5, 7] {
        let all = run(ranks, Some(5));
        assert!(all.iter().all(|one| one == &alone[0]), "{ranks} ranks");
    }
}
