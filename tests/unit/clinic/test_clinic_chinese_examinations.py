"""Orders of examinations and tests in Chinese, read against the results on record."""

import re
import time

import pytest

from clinic.cases import Fact
from clinic.patients.base import test_matcher as matcher_of
from clinic.understanding.chinese_examinations import FILE, ChineseExaminationMatcher, chinese_examinations
from clinic.understanding.examinations import MOST

COLUMNS = {
    "检查结果：查体": "T 38.9℃，P 110次/分，BP 118/70mmHg。右下肺可闻及湿啰音，腹软，麦氏点压痛（+）。",
    "检查结果：辅助检查": "血常规：WBC 16.2×10^9/L，N 88%。CRP 187mg/L。胸部CT：右下肺实变影。心电图：窦性心动过速。",
}
STROKE = {
    "检查结果：体格检查": "体温36.8℃，脉搏88次/分，呼吸20次/分，血压160/95mmHg。神志清，双侧瞳孔等大。颈软，双肺呼吸音清，未闻及啰音。"
    "腹平软，无压痛，肝脾肋下未触及，肠鸣音4次/分。左侧肢体肌力3级，左侧巴氏征阳性。双下肢无水肿。",
    "检查结果：化验": "血常规、电解质正常；空腹血糖9.8mmol/L；肝肾功能未见异常；尿常规：蛋白（+），白细胞3+；凝血功能：INR 1.0；未做心肌酶。",
    "检查结果：影像": "头颅CT：右侧基底节区低密度影。颈动脉彩超：斑块形成。建议行头颅MRI检查。",
}
NOTES = {
    "体格检查": "腹部膨隆，移动性浊音阳性，右上腹压痛，Murphy征阳性。直肠指检未触及肿物。",
    "化验检查": "尿妊娠试验阴性，CA125 58U/ml。痰涂片及培养阴性，肺炎支原体IgM抗体阳性。乙肝五项：HBsAg（+）。",
    "B超": "肝脏回声增粗，脾大，腹腔大量积液。",
    "胃镜检查": "胃窦部溃疡，活检病理：慢性炎症，HP（+）。",
    "肺功能": "未做",
}
APART = {
    "检查结果：血常规": "白细胞 14.2×10^9/L，中性粒细胞 88%",
    "检查结果：尿常规": "白细胞 3+/HP，红细胞 2+",
    "检查结果：腹部CT": "阑尾增粗，周围脂肪间隙模糊",
    "检查结果：右膝X线": "未见骨折",
    "检查结果：心脏": "律齐，心尖区可闻及收缩期杂音",
    "檢查結果：腰椎磁共振": "椎間盤突出",
    "检查结果：动态心电图": "偶发早搏",
}
ORDERS = [  # a record, the last part of the topics that answer, and orders
    (COLUMNS, "辅助检查", "血常规|血常规检查|复查血常规|CBC|白细胞|wbc|中性粒细胞|血常规+CRP|抽血化验"),
    (COLUMNS, "辅助检查", "CRP|crp|C反应蛋白|超敏C反应蛋白|胸部CT|胸部CT检查|CT|做个胸部CT看看有没有肺炎|胸部電腦斷層"),
    (COLUMNS, "辅助检查", "心电图|心电图检查|心電圖|十二导联心电图|EKG|辅助检查|輔助檢查|影像学检查"),
    (COLUMNS, "查体", "体温|量体温|測體溫|脉搏|心率|血压|测血压|生命体征|体温、脉搏、呼吸、血压"),
    (COLUMNS, "查体", "肺部听诊|雙肺聽診|听诊|听一下肺|腹部触诊|触诊|腹部检查|麦氏点|体格检查|查体|进行全面体格检查"),
    (COLUMNS, "", "脑电图|头颅MRI|頭顱CT|腹部CT|胸部MRI|肌钙蛋白|血小板|尿常规|肝功能|胸片|B超|血气分析|PCT"),
    (
        COLUMNS,
        "",
        "眼底检查|直肠指检|心脏听诊|叩诊|神经系统查体|血氧饱和度|呼吸频率|淋巴结|所有检查|检查|请|肺炎|告诉我诊断",
    ),
    (
        STROKE,
        "体格检查",
        "呼吸频率|瞳孔检查|心肺听诊|肝脏触诊|肠鸣音|四肢肌力|病理反射|神经系统检查|脑膜刺激征|下肢水肿|颈部检查",
    ),
    (STROKE, "化验", "白细胞|血红蛋白|血钾|肌酐|谷丙转氨酶|空腹血糖|尿常规|尿蛋白|凝血四项|INR|查一下肝功和肾功"),
    (STROKE, "影像", "头颅CT|建议完善头部CT平扫以排除颅内出血|颈动脉彩超|颈部血管超声|CT"),
    (STROKE, "化验 影像", "血常规、肝功能、头颅CT|血糖；颈动脉彩超"),
    (STROKE, "", "心肌酶|头颅MRI|D-二聚体|HbA1c|甲状腺彩超|心脏彩超|腹部CT|腰椎穿刺|视力|右侧肢体肌力|步态"),
    (NOTES, "体格检查", "腹部视诊|移动性浊音|腹部叩诊|墨菲征|肛门指诊"),
    (NOTES, "化验检查", "HCG|验孕|CA125|痰培养|支原体抗体|肺炎支原体抗体|乙肝两对半"),
    (NOTES, "B超", "腹部B超|腹部超声|肝脏超声|腹部彩色多普勒超声|B超检查|超音波"),
    (NOTES, "胃镜检查", "胃镜|活检|病理检查|幽门螺杆菌"),
    (
        NOTES,
        "",
        "CA199|尿培养|血培养|肺炎衣原体抗体|丙肝抗体|甲状腺超声|妇科检查|肠镜|C13呼气试验|肺功能检查|EB病毒抗体",
    ),
    (APART, "血常规", "白细胞|血常规|中性粒细胞"),
    (APART, "尿常规", "尿常规|尿检"),
    (APART, "腹部CT", "腹部CT|阑尾CT|CT检查|腹部增强CT扫描"),
    (APART, "右膝X线", "X线|膝关节X光|右膝关节X线片"),
    (APART, "心脏", "心脏听诊|心臟聽診"),
    (APART, "腰椎磁共振", "腰椎MRI|核磁|腰椎磁共振|腰椎核磁共振检查"),
    (APART, "动态心电图", "Holter|24小时动态心电图"),
    (APART, "血常规 尿常规", "血常规、尿常规"),
    (APART, "", "左膝X线|胸部X线|胸部CT|头颅磁共振|肺部听诊|心电图|红细胞|大便常规|脑脊液白细胞|超声"),
]


@pytest.mark.parametrize(
    ("record", "wanted", "order"),
    [(record, wanted.split(), order) for record, wanted, orders in ORDERS for order in orders.split("|")],
)
def test_an_order_brings_what_was_ordered_and_nothing_else(record, wanted, order):
    matcher = ChineseExaminationMatcher([Fact(topic, True, text) for topic, text in record.items()])
    assert [re.split("：", topic)[-1] for topic in matcher.match(order)] == wanted


@pytest.mark.parametrize(
    ("text", "order", "found"),
    [
        ("CT：腹部未见异常", "腹部CT", True),
        ("CT：腹部未见异常", "头颅CT", False),
        ("头颅CT平扫及胸部MRI无异常", "头颅MRI", False),
        ("头颅CT平扫及胸部MRI无异常", "胸部MRI", True),
        ("胸部CT：右肺门淋巴结肿大", "淋巴结触诊", False),
        ("脑脊液：白细胞 200×10^6/L", "白细胞", False),
        ("脑脊液：白细胞 200×10^6/L", "腰穿", True),
        ("电解质：钾 3.0mmol/L", "血钠", False),
        ("冠脉CTA：前降支狭窄", "胸部CT", False),
        ("心脏彩超：EF 60%", "超声心动图", True),
        ("患者拒绝胃镜检查", "胃镜", False),
        ("肺炎支原体IgM抗体阳性", "支原体IgM", True),
        ("轮状病毒抗原阳性", "轮状病毒抗原检测", True),
        ("轮状病毒抗原阳性", "腺病毒抗原检测", False),
    ],
)
def test_places_fluids_and_what_was_not_done_are_heard(text, order, found):
    matcher = ChineseExaminationMatcher([Fact("检查结果：结果", True, text)])
    assert bool(matcher.match(order)) == found


def test_results_are_matched_so_for_a_chinese_case(make_case):
    facts = tuple(Fact(topic, True, text) for topic, text in COLUMNS.items())
    match = matcher_of(make_case(language="zh", facts=facts))
    assert match("检查结果：查体") == ["检查结果：查体"]
    assert match("体温、胸部CT") == list(COLUMNS)


def test_no_order_brings_more_than_the_most_and_everything_is_one_result():
    facts = [Fact(f"检查结果：查体 ({number})", True, "腹部压痛") for number in range(MOST + 2)]
    matcher = ChineseExaminationMatcher(facts)
    assert len(matcher.match("腹部触诊")) == MOST
    assert len(matcher.match("体格检查")) == 1


@pytest.mark.parametrize("order", ["血常规" * 6000, "胸部CT、" * 4000, "x" * 18_000, "啊" * 18_000, "肺，" * 9000])
def test_an_endless_order_takes_no_time(order):
    matcher = ChineseExaminationMatcher([Fact(topic, True, text) for topic, text in COLUMNS.items()])
    matcher.match("体温")
    began = time.process_time()
    matcher.match(order)
    assert time.process_time() - began < 1


def test_what_the_words_refer_to_is_there():
    words = chinese_examinations()
    measures, places = words._measures, words._places
    assert frozenset().union(*words.whole.values(), words.named_as.values()) <= measures.keys()
    assert frozenset().union(*words.around.values(), *words.at.values()) <= places.keys()
    assert not re.search("[\U0000fffd]", FILE.read_text(encoding="utf-8"))
